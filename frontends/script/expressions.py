"""Evaluation of the expressions of prim functions.

A value is a Python number, text or tuple known when the function is made, a scalar `Expr`, a buffer, or a name of
the language. The two forms differ in the meaning of loops, blocks and stores: `tensor_form.py`, `buffer_form.py`.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import math
import operator
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from mirlo.dialects.core.dims import Dim, SymbolicDim
from mirlo.dialects.core.dtypes import DTYPES, DType
from mirlo.dialects.tir.compute import BOOL, INDEX, Expr, all_of, constant, lift, select
from mirlo.dialects.tir.compute import call as call_intrinsic
from mirlo.frontends.script.buffers import ScriptBuffer
from mirlo.frontends.script.describe import describe, is_number, kind_of
from mirlo.frontends.script.errors import ScriptError
from mirlo.frontends.script.inline import InlineFunction
from mirlo.frontends.script.source import Located, ScriptSource
from mirlo.frontends.script.symbols import Language, ScriptName

_OPERATORS: dict[type, tuple[str, str]] = {
    ast.Add: ("__add__", "+"), ast.Sub: ("__sub__", "-"), ast.Mult: ("__mul__", "*"), ast.Div: ("__truediv__", "/"),
    ast.FloorDiv: ("__floordiv__", "//"), ast.Mod: ("__mod__", "%"), ast.BitAnd: ("__and__", "&"),
    ast.BitOr: ("__or__", "|"), ast.BitXor: ("__xor__", "^"), ast.LShift: ("__lshift__", "<<"),
    ast.RShift: ("__rshift__", ">>"), ast.Pow: ("__pow__", "**"), ast.MatMult: ("__matmul__", "@"),
}  # fmt: skip
_PREDICATES = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}
STATIC_CALLS = {name: getattr(builtins, name) for name in ("int", "float", "bool", "len", "range", "tuple", "sum")}
EXTREMES = ("min", "max", "abs")
"""Python's functions that are names of the language."""
_OF_DIMS = {f"__{name}__": getattr(operator, name) for name in ("add", "sub", "mul", "floordiv", "mod")}
"""The operators of dims that are known at run time only."""
_BITWISE = ("__and__", "__or__", "__xor__", "__lshift__", "__rshift__")


_SHORT = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16",
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)}, **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""Element types as numpy and TVM call them."""


T = TypeVar("T")


class Expressions:
    """Evaluates expressions; subclasses add calls."""

    def __init__(self, source: ScriptSource, names: dict[str, object], captured: dict[str, object]):
        self.source = source
        self.names = names
        self.captured = captured

    # Errors

    def error(self, node: Located, problem: str) -> ScriptError:
        return self.source.error(node, problem)

    def _checked(self, node: Located, build: Callable[[], T]) -> T:
        try:
            return build()
        except (TypeError, ValueError) as error:
            raise self.error(node, str(error)) from None

    # Values

    def value(self, node: Located) -> object:
        """Evaluate an expression."""
        handler = getattr(self, f"_value_{type(node).__name__}", None)
        if handler is None:
            raise self.error(node, f"{describe(node)} has no meaning in a prim function")
        return handler(node)

    def scalar(self, node: Located, like: DType | None = None) -> Expr:
        """Evaluate an expression that must be a scalar; literals take the type `like`."""
        value = self.value(node)
        if isinstance(value, Expr):
            return value
        if is_number(value) and like is not None:
            return self.lifted(value, like, node)
        if is_number(value):
            raise self.error(node, "a number needs a type: write T.f32(...), for example")
        raise self.error(node, f"expected a scalar, found {kind_of(value)}")

    def lifted(self, value: object, element: DType, node: Located) -> Expr:
        """Convert a number to a scalar of an element type that represents it."""
        if isinstance(value, Expr):
            return value
        if isinstance(value, SymbolicDim):
            return lift(value, INDEX)
        if not is_number(value):
            raise self.error(node, f"expected a scalar, found {kind_of(value)}")
        if isinstance(value, float) and not element.is_float and not (element.is_integer and value.is_integer()):
            raise self.error(node, f"{value} is not of type {element}: cast what it meets, or write an integer")
        return lift(value, element)

    def stored(self, buffer: ScriptBuffer, value: object, node: Located) -> Expr:
        """Convert a value to a buffer's element type; indices become integers."""
        scalar = self.lifted(value, buffer.dtype, node)
        if scalar.dtype is INDEX and buffer.dtype.is_integer:
            return scalar.cast(buffer.dtype)
        if scalar.dtype is not buffer.dtype:
            cast = f"cast it with .cast('{buffer.dtype}')"
            raise self.error(node, f"'{buffer.name}' holds {buffer.dtype}, found {scalar.dtype}: {cast}")
        return scalar

    def static(self, node: Located, what: str) -> int:
        """Evaluate an integer that is known when the function is made."""
        value = self.value(node)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(node, f"{what} must be an integer known when the function is made, found {kind_of(value)}")
        return value

    def text(self, node: Located, what: str) -> str:
        value = self.value(node)
        if not isinstance(value, str):
            raise self.error(node, f"{what} must be text in quotes, found {kind_of(value)}")
        return value

    def element_type(self, node: Located) -> DType:
        value = self.value(node)
        if isinstance(value, DType):
            return value
        name = value.name if isinstance(value, ScriptName) else value
        result = DTYPES.get(_SHORT.get(name, name)) if isinstance(name, str) else None
        if result is None:
            near = difflib.get_close_matches(str(name), DTYPES, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else f"; known: {', '.join(DTYPES)}"
            raise self.error(node, f"expected an element type such as 'f32', found {name!r}{hint}")
        return result

    def shape(self, node: Located) -> tuple[Dim, ...]:
        """Return the dims of a shape: integers, and symbols where the function is made for dynamic dims."""
        value = self.value(node)
        dims = self.flat(value) if isinstance(value, (tuple, list)) else [value]
        checked: list[Dim] = []
        for dim in dims:
            if not isinstance(dim, SymbolicDim) and (isinstance(dim, bool) or not isinstance(dim, int) or dim < 0):
                raise self.error(node, f"a shape is a tuple of integers, found {kind_of(dim)} in it")
            checked.append(dim)
        return tuple(checked)

    def flat(self, value: object) -> list[object]:
        if isinstance(value, (tuple, list)):
            return [item for member in value for item in self.flat(member)]
        return [value]

    # Expressions

    def _value_Constant(self, node: ast.Constant) -> object:
        if isinstance(node.value, (int, float, str)) or node.value is None:
            return node.value
        raise self.error(node, f"{describe(node)} has no meaning in a prim function")

    def _value_Name(self, node: ast.Name) -> object:
        name = node.id
        for scope in (self.names, self.captured, STATIC_CALLS):
            if name in scope:
                return self.read_name(scope[name])
        if name in EXTREMES:
            return ScriptName("T", name)
        if name == "range":
            return range
        known = [*self.names, *self.captured]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        if name == "metadata":
            hint = ", where TVM prints constants apart from the script: write R.const(array), or R.param"
        raise self.error(node, f"unknown name '{name}'{hint}")

    def read_name(self, value: object) -> object:
        """Return the value that a name stands for."""
        return value

    def _value_Attribute(self, node: ast.Attribute) -> object:
        owner = self.value(node.value)
        if isinstance(owner, Language):
            try:
                return getattr(owner, node.attr)
            except AttributeError as error:
                raise self.error(node, str(error)) from None
        if node.attr == "shape" and isinstance(owner, ScriptBuffer):
            return tuple(owner.shape)
        element = getattr(owner, "dtype", None)
        if node.attr == "dtype" and isinstance(element, DType):
            return element
        if owner is math and isinstance(getattr(math, node.attr, None), float):
            return getattr(math, node.attr)
        if isinstance(owner, SymbolicDim):
            return Method(lift(owner, INDEX), node.attr)
        if isinstance(owner, (Expr, int, float, ScriptBuffer)) or owner is math:
            return Method(owner, node.attr)
        value = getattr(owner, node.attr, None)
        if is_number(value) or isinstance(value, (str, tuple, InlineFunction, Language)):
            return value
        raise self.error(node, f"{kind_of(owner)} has no attribute '{node.attr}' that a prim function can use")

    def _value_Tuple(self, node: ast.Tuple) -> tuple[object, ...]:
        values: list[object] = []
        for item in node.elts:
            value = self.value(item.value if isinstance(item, ast.Starred) else item)
            if isinstance(item, ast.Starred):
                if not isinstance(value, (tuple, list)):
                    raise self.error(item, f"* needs a tuple, found {kind_of(value)}")
                values += value
            else:
                values.append(value)
        return tuple(values)

    _value_List = _value_Tuple

    def _value_BinOp(self, node: ast.BinOp) -> object:
        left, right = self.value(node.left), self.value(node.right)
        method, symbol = _OPERATORS.get(type(node.op), ("", ""))
        if not method:
            raise self.error(node, f"operator {describe(node.op)} has no meaning in a prim function")
        return self.binary(node, method, symbol, left, right)

    def binary(self, node: Located, method: str, symbol: str, left: object, right: object) -> object:
        """Apply an arithmetic operator to two values."""
        if not isinstance(left, Expr) and not isinstance(right, Expr):
            return self._static_binary(node, method, symbol, left, right)
        left, right = self.matched(left, right, node)
        if method == "__matmul__":
            raise self.error(node, "operator '@' is for tensors of graphs: a prim function sums the products in loops")
        if method == "__pow__":
            return self._checked(node, lambda: call_intrinsic("pow", left, right))
        if method in _BITWISE and left.dtype.is_float:
            raise self.error(node, f"operator '{symbol}' takes integers, found {left.dtype}")
        if method == "__truediv__" and not left.dtype.is_float:
            raise self.error(node, f"operator '/' takes floats, found {left.dtype}: use // or cast with .cast('f32')")
        return self._checked(node, lambda: getattr(left, method)(right))

    def _static_binary(self, node: Located, method: str, symbol: str, left: object, right: object) -> object:
        result = NotImplemented
        if isinstance(left, SymbolicDim) or isinstance(right, SymbolicDim):
            operation = _OF_DIMS.get(method)
            if operation is not None and all(isinstance(dim, (int, SymbolicDim)) for dim in (left, right)):
                return self._checked(node, lambda: operation(left, right))
        if is_number(left) and is_number(right) or isinstance(left, (tuple, str)):
            try:
                result = getattr(left, method)(right)
                if result is NotImplemented and is_number(left) and is_number(right):
                    result = getattr(float(left), method)(float(right))
            except ZeroDivisionError:
                raise self.error(node, f"operator '{symbol}' divides by zero") from None
            except (ArithmeticError, TypeError, ValueError, AttributeError) as error:
                raise self.error(node, f"{error}") from None
        if result is NotImplemented:
            raise self.error(node, f"operator '{symbol}' has no meaning for {kind_of(left)} and {kind_of(right)}")
        return result

    def matched(self, left: object, right: object, node: Located) -> tuple[Expr, Expr]:
        """Convert two scalars to one type: literals take the other's type, indices combine with integers as indices."""
        element = next(x.dtype for x in (left, right) if isinstance(x, Expr))
        a, b = self.lifted(left, element, node), self.lifted(right, element, node)
        if a.dtype is b.dtype:
            return a, b
        if INDEX in (a.dtype, b.dtype) and all(x.dtype is INDEX or x.dtype.is_integer for x in (a, b)):
            return a.cast(INDEX), b.cast(INDEX)
        raise self.error(node, f"{a.dtype} meets {b.dtype}: cast one of them, for instance with .cast('{a.dtype}')")

    def _value_UnaryOp(self, node: ast.UnaryOp) -> object:
        value = self.value(node.operand)
        if isinstance(value, SymbolicDim):
            value = lift(value, INDEX)
        if is_number(value):
            if isinstance(node.op, ast.Invert) and not isinstance(value, int):
                raise self.error(node, f"operator '~' takes integers, found {kind_of(value)}")
            operations: dict[type, Callable[[], float]] = {
                ast.USub: lambda: -value, ast.UAdd: lambda: value, ast.Not: lambda: not value,
                ast.Invert: lambda: ~int(value),
            }  # fmt: skip
            return operations[type(node.op)]()
        if not isinstance(value, Expr):
            raise self.error(node, f"expected a scalar, found {kind_of(value)}")
        if isinstance(node.op, ast.USub):
            return -value
        if isinstance(node.op, ast.Not):
            return ~self.condition(value, node.operand)
        if isinstance(node.op, ast.Invert):
            if value.dtype.is_float:
                raise self.error(node, f"operator '~' takes integers, found {value.dtype}")
            return ~value
        return value

    def _value_BoolOp(self, node: ast.BoolOp) -> object:
        values = [self.value(item) for item in node.values]
        if all(is_number(v) for v in values):
            return all(values) if isinstance(node.op, ast.And) else any(values)
        terms = [self.condition(v, item) for v, item in zip(values, node.values, strict=True)]
        result = terms[0]
        for term in terms[1:]:
            result = result & term if isinstance(node.op, ast.And) else result | term
        return result

    def condition(self, value: object, node: Located) -> Expr:
        """Convert a scalar to a condition."""
        if is_number(value):
            return constant(bool(value), BOOL)
        if not isinstance(value, Expr) or value.dtype is not BOOL:
            kind = str(value.dtype) if isinstance(value, Expr) else kind_of(value)
            raise self.error(node, f"expected a condition (bool), found {kind}: compare it, for instance with != 0")
        return value

    def _value_Compare(self, node: ast.Compare) -> object:
        values = [self.value(item) for item in (node.left, *node.comparators)]
        results: list[Expr | bool] = []
        for op, left, right in zip(node.ops, values, values[1:], strict=False):
            predicate = _PREDICATES.get(type(op))
            if predicate is None:
                raise self.error(node, f"comparison '{describe(op)}' has no meaning in a prim function")
            if any(isinstance(value, (Expr, SymbolicDim)) for value in (left, right)):
                left, right = (lift(v, INDEX) if isinstance(v, SymbolicDim) else v for v in (left, right))
                a, b = self.matched(left, right, node)
                results.append(self._checked(node, partial(a.compare, predicate, b)))
            else:
                results.append(self._checked(node, partial(_static_compare, predicate, left, right)))
        if all(isinstance(r, bool) for r in results):
            return all(results)
        return all_of([constant(r, BOOL) if isinstance(r, bool) else r for r in results])

    def _value_IfExp(self, node: ast.IfExp) -> object:
        condition = self.value(node.test)
        if is_number(condition):
            return self.value(node.body if condition else node.orelse)
        return self.choice(node, condition, self.value(node.body), self.value(node.orelse), node.test)

    def choice(self, node: Located, condition: object, yes: object, no: object, test: Located) -> object:
        """Select `yes` or `no` by a condition."""
        if is_number(condition):
            return yes if condition else no
        chosen = self.condition(condition, test)
        if not isinstance(yes, Expr) and not isinstance(no, Expr):
            raise self.error(node, "one of two numbers needs a type: write T.f32(...), for example")
        a, b = self.matched(yes, no, node)
        return self._checked(node, lambda: select(chosen, a, b))

    def _value_Subscript(self, node: ast.Subscript) -> object:
        owner = self.value(node.value)
        if isinstance(owner, ScriptBuffer):
            return self.read(owner, node, self.indices(owner, node.slice, node))
        if isinstance(owner, (tuple, list)):
            if isinstance(node.slice, ast.Slice):
                parts = [None if p is None else self.static(p, "a bound") for p in (node.slice.lower, node.slice.upper)]
                return tuple(owner)[parts[0] : parts[1]]
            position = self.static(node.slice, "a position")
            if not -len(owner) <= position < len(owner):
                raise self.error(node, f"position {position} is outside of a tuple of {len(owner)}")
            return owner[position]
        raise self.error(node, f"{kind_of(owner)} cannot be indexed")

    def read(self, buffer: ScriptBuffer, node: Located, indices: list[Expr], outside: float | None = None) -> Expr:
        """Load an element of a buffer."""
        return buffer.read(indices, outside)

    def indices(self, buffer: ScriptBuffer, node: Located, place: Located, padded: bool = False) -> list[Expr]:
        """Evaluate and check the indices in `buffer[...]`; padded ones may be out of bounds."""
        if isinstance(node, ast.Slice) or (
            isinstance(node, ast.Tuple) and any(isinstance(e, ast.Slice) for e in node.elts)
        ):
            raise self.error(node, "slices are not supported: index single elements")
        values = self.flat(self.value(node))
        if len(values) != len(buffer.shape):
            raise self.error(
                place, f"'{buffer.name}' has rank {len(buffer.shape)}: expected {len(buffer.shape)} indices, "
                f"found {len(values)}",
            )  # fmt: skip
        result = []
        values = [lift(value, INDEX) if isinstance(value, SymbolicDim) else value for value in values]
        for i, (value, size) in enumerate(zip(values, buffer.shape, strict=True)):
            if isinstance(value, Expr) and not (value.dtype is INDEX or value.dtype.is_integer):
                raise self.error(place, f"index #{i} of '{buffer.name}' must be an integer, found {value.dtype}")
            if not isinstance(value, Expr) and (isinstance(value, bool) or not isinstance(value, int)):
                raise self.error(place, f"index #{i} of '{buffer.name}' must be an integer, found {kind_of(value)}")
            beyond = isinstance(value, int) and (value < 0 or isinstance(size, int) and value >= size)
            if beyond and not padded:
                raise self.error(place, f"index #{i} of '{buffer.name}' is {value}, outside of 0 to {size - 1}")
            result.append(lift(value, INDEX).cast(INDEX))
        return result


class Method:
    """A method about to be called."""

    def __init__(self, owner: object, name: str):
        self.owner = owner
        self.name = name


def _static_compare(predicate: str, left: object, right: object) -> bool:
    return bool(getattr(operator, predicate)(left, right))
