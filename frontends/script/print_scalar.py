"""Printing of scalars: expressions that parse to the same operations."""

from __future__ import annotations

import math
from collections.abc import Callable

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import DType, dtype_of_mlir
from mirlo.dialects.core.value import is_constant
from mirlo.dialects.tir.compute.expr import BOOL, INDEX, Expr, simplified
from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.dialects.tir.own_intrinsics import OWN

ATOM = 100
_SYMBOLS = {
    "arith.addf": ("+", "add", 8), "arith.subf": ("-", "sub", 8), "arith.mulf": ("*", "mul", 9),
    "arith.divf": ("/", "div", 9), "arith.addi": ("+", "add", 8), "arith.subi": ("-", "sub", 8),
    "arith.muli": ("*", "mul", 9), "arith.floordivsi": ("//", "floordiv", 9), "arith.andi": ("&", "and", 6),
    "arith.ori": ("|", "or", 4), "arith.xori": ("^", "xor", 5), "arith.shli": ("<<", "shl", 7),
    "arith.shrsi": (">>", "shr", 7),
}  # fmt: skip
"""Operation: Python's operator, its name in the expression language, its precedence."""
_EXTREMES = {"arith.maximumf": "max", "arith.minimumf": "min", "arith.maxsi": "max", "arith.minsi": "min"}
_FLOAT_PREDICATES = {1: "==", 2: ">", 3: ">=", 4: "<", 5: "<=", 13: "!="}
_INT_PREDICATES = {0: "==", 1: "!=", 2: "<", 3: "<=", 4: ">", 5: ">="}
_CONTRACTED = ("arith.addf", "arith.subf", "arith.mulf")


class NotPrintable(Exception):
    """Why an operation has no script syntax."""


def quoted(text: str) -> str:
    """Return text as a Python literal."""
    return f'"{text}"' if text.isprintable() and '"' not in text and "\\" not in text else repr(text)


def scalar_dtype(mlir_type: ir.Type) -> DType:
    """Return the element type of a scalar."""
    if isinstance(mlir_type, ir.IntegerType) and mlir_type.width == 1:
        return BOOL
    result = dtype_of_mlir(mlir_type)
    if result is None or (result is not INDEX and result.compute != result.mlir):
        raise NotPrintable(f"there is no scalar of {mlir_type}")
    return result


def number_text(attribute: ir.Attribute) -> str:
    """Return a number attribute as Python."""
    if isinstance(attribute, ir.FloatAttr):
        value = attribute.value
        return repr(value) if math.isfinite(value) else f'float("{value}")'
    if (
        isinstance(attribute, ir.IntegerAttr)
        and isinstance(attribute.type, ir.IntegerType)
        and attribute.type.width == 1
    ):
        return str(bool(attribute.value))
    return str(attribute.value)


class ScalarPrinter:
    """Prints SSA values. `names` are values that have a name; `leaf` prints other leaves."""

    def __init__(self, leaf: Callable[[ir.Value], str | None]):
        self.names: dict[ir.Value, str] = {}
        self.leaf = leaf

    def text(self, value: ir.Value, tight: int = 0, typed: bool = True) -> str:
        """Return an expression, in parentheses if its precedence is below `tight`. Numbers are typed on request."""
        expression, strength = self._text(value, typed)
        return f"({expression})" if strength < tight else expression

    def _text(self, value: ir.Value, typed: bool) -> tuple[str, int]:
        named = self.names.get(value)
        if named is None:
            named = self.leaf(value)
        if named is not None:
            return named, ATOM
        op = value.owner if isinstance(value, ir.OpResult) else None
        if op is None or len(op.results) != 1 or len(op.regions):
            raise NotPrintable(f"a value has no name: {value}")
        if op.name == "arith.constant":
            return self._constant(op, typed)
        handler = _HANDLERS.get(op.name)
        printed = handler(self, op) if handler else None
        if printed is None and op.name in _SYMBOLS:
            printed = self._operator(op)
        if printed is None and op.name.startswith("tir.") and op.name[4:] in INTRINSICS:
            printed = self._function(op.name[4:], op), ATOM
        if printed is None and op.name in OWN:
            arguments = [f'"{op.name}"', *(self.text(operand) for operand in op.operands)]
            printed = f"T.call_intrin({', '.join(arguments)})", ATOM
        return printed if printed is not None else (self._raw(op), ATOM)

    def _constant(self, op: ir.OpView, typed: bool) -> tuple[str, int]:
        number, element = number_text(op.attributes["value"]), scalar_dtype(op.results[0].type)
        if typed:
            return f"T.{element}({number})", ATOM
        return number, 11 if number.startswith("-") else ATOM

    def _operator(self, op: ir.OpView) -> tuple[str, int] | None:
        symbol, name, strength = _SYMBOLS[op.name]
        left, right = op.operands
        if _has_flags(op, contract=op.name in _CONTRACTED) or not self._is_kept(name, left, right):
            return None
        both = is_constant(left) and is_constant(right)
        a = self.text(left, strength, typed=both or not _infers_type(left, right))
        b = self.text(right, strength + 1, typed=both or not _infers_type(right, left))
        return f"{a} {symbol} {b}", strength

    def _is_kept(self, name: str, left: ir.Value, right: ir.Value) -> bool:
        """Return whether the expression language does not simplify this operation."""
        if (is_constant(left) or is_constant(right)) and scalar_dtype(left.type) is not INDEX:
            return simplified(name, self._expr(left), self._expr(right)) is None
        return simplified(name, self._expr(left), self._expr(right)) is None

    def _expr(self, value: ir.Value, depth: int = 1) -> Expr:
        """Return enough of an expression to decide whether it would be simplified."""
        element = scalar_dtype(value.type)
        if is_constant(value):
            attribute = value.owner.attributes["value"]
            number = bool(attribute.value) if element is BOOL else attribute.value
            return Expr("const", (), element, number)
        if depth and isinstance(value, ir.OpResult) and value.owner.name in ("arith.addi", "arith.subi"):
            parts = tuple(self._expr(v, 0) for v in value.owner.operands)
            if value not in self.names:
                return Expr(_SYMBOLS[value.owner.name][1], parts, element)
        return Expr("value", (), element, value)

    def _function(self, name: str, op: ir.OpView) -> str:
        intrinsic = INTRINSICS.get(name)
        operands = list(op.operands)
        first = next((v for v in operands if not is_constant(v)), None)
        arguments = []
        for i, value in enumerate(operands):
            plain = first is not None and value.type == first.type and value is not first
            if intrinsic is not None and intrinsic.operands == "float_int" and i == 1:
                plain = False
            arguments.append(self.text(value, typed=not plain))
        return f"T.{name}({', '.join(arguments)})"

    def _raw(self, op: ir.OpView) -> str:
        """Return `T.op("arith.extui", x, dtype="i32")`, for operations without other syntax."""
        element = scalar_dtype(op.results[0].type)
        parts = [f'"{op.name}"', *(self.text(v) for v in op.operands), f'dtype="{element}"']
        for i in range(len(op.attributes)):
            named = op.attributes[i]
            if str(named.attr) not in ("#arith.fastmath<none>", "#arith.overflow<none>"):
                parts.append(f"{named.name}={quoted(str(named.attr))}")
        return f"T.op({', '.join(parts)})"

    def compare(self, op: ir.OpView) -> tuple[str, int] | None:
        table = _FLOAT_PREDICATES if op.name == "arith.cmpf" else _INT_PREDICATES
        symbol = table.get(ir.IntegerAttr(op.attributes["predicate"]).value)
        left, right = op.operands
        if symbol is None or _has_flags(op) or scalar_dtype(left.type) is BOOL and symbol not in ("==", "!="):
            return None
        name = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}[symbol]
        # Comparisons use the same simplification as arithmetic, which does nothing for these names.
        if simplified("cmp", self._expr(left), self._expr(right)) is not None or not name:
            return None
        both = is_constant(left) and is_constant(right)
        a = self.text(left, 4, typed=both or not _infers_type(left, right))
        b = self.text(right, 4, typed=both or not _infers_type(right, left))
        return f"{a} {symbol} {b}", 3

    def select(self, op: ir.OpView) -> tuple[str, int] | None:
        condition, yes, no = op.operands
        if is_constant(condition) or _has_flags(op):
            return None
        both = is_constant(yes) and is_constant(no)
        a = self.text(yes, typed=both or not is_constant(yes))
        return f"T.select({self.text(condition)}, {a}, {self.text(no, typed=not is_constant(no))})", ATOM

    def extreme(self, op: ir.OpView) -> tuple[str, int] | None:
        left, right = op.operands
        name = _EXTREMES[op.name]
        if _has_flags(op) or (is_constant(left) and is_constant(right)) or not self._is_kept(name, left, right):
            return None
        a, b = (self.text(v, typed=not is_constant(v)) for v in op.operands)
        return f"T.{name}({a}, {b})", ATOM

    def negation(self, op: ir.OpView) -> tuple[str, int] | None:
        if _has_flags(op) or is_constant(op.operands[0]):
            return None
        return f"-{self.text(op.operands[0], 11)}", 10

    def cast(self, op: ir.OpView) -> tuple[str, int] | None:
        source, target = scalar_dtype(op.operands[0].type), scalar_dtype(op.results[0].type)
        if _has_flags(op) or not _is_cast(op.name, source, target):
            return None
        return f'{self._owner(op.operands[0])}.cast("{target}")', ATOM

    def bitcast(self, op: ir.OpView) -> tuple[str, int] | None:
        target = scalar_dtype(op.results[0].type)
        return f'{self._owner(op.operands[0])}.bitcast("{target}")', ATOM

    def _owner(self, value: ir.Value) -> str:
        """Return a scalar as the receiver of a method call."""
        return self.text(value, ATOM, typed=True)


_HANDLERS: dict[str, Callable[[ScalarPrinter, ir.OpView], tuple[str, int] | None]] = {
    "arith.cmpf": ScalarPrinter.compare,
    "arith.cmpi": ScalarPrinter.compare,
    "arith.select": ScalarPrinter.select,
    "arith.negf": ScalarPrinter.negation,
    "arith.bitcast": ScalarPrinter.bitcast,
    **dict.fromkeys(_EXTREMES, ScalarPrinter.extreme),
    **dict.fromkeys(
        ("arith.extf", "arith.truncf", "arith.sitofp", "arith.uitofp", "arith.fptosi", "arith.extsi", "arith.extui",
         "arith.trunci", "arith.index_cast", "arith.index_castui"), ScalarPrinter.cast,
    ),
}  # fmt: skip


def _infers_type(value: ir.Value, other: ir.Value) -> bool:
    """Return whether a literal may be printed without its type because it takes the other operand's."""
    return is_constant(value) and not is_constant(other) and value.type == other.type


def _has_flags(op: ir.OpView, contract: bool = False) -> bool:
    """Return whether the operation has other flags than those that the script's syntax sets."""
    attributes = op.attributes
    fastmath = str(attributes["fastmath"]) if "fastmath" in attributes else "#arith.fastmath<none>"
    wanted = "#arith.fastmath<contract>" if contract else "#arith.fastmath<none>"
    overflow = str(attributes["overflowFlags"]) if "overflowFlags" in attributes else "#arith.overflow<none>"
    is_float = op.name.endswith("f") and op.name.startswith("arith.")
    return (is_float and fastmath != wanted) or overflow != "#arith.overflow<none>"


def _is_cast(name: str, source: DType, target: DType) -> bool:
    """Return whether `.cast(target)` of a scalar of `source` makes exactly this operation."""
    if target is BOOL:
        return False
    if INDEX in (source, target):
        return not source.is_float and not target.is_float and (
            name == ("arith.index_castui" if source.is_unsigned else "arith.index_cast")
        )  # fmt: skip
    if source.is_float and target.is_float:
        if source.bits < target.bits:
            return name == "arith.extf"
        return name == "arith.truncf" and source.bits > target.bits and not (source.bits == 64 and target.bits == 16)
    if source.is_float:
        return name == "arith.fptosi" and target.bits >= 32
    if target.is_float:
        return name == ("arith.uitofp" if source.is_unsigned else "arith.sitofp")
    if source.bits > target.bits:
        return name == "arith.trunci"
    return source.bits < target.bits and name == ("arith.extui" if source.is_unsigned else "arith.extsi")
