"""Scalar operations as C expressions."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Protocol

from mirlo.dialects.bindings import ir
from mirlo.targets.c.halves import HALVES, half_bits, is_half


class TypedValue(Protocol):
    """An operand or a result of a scalar operation."""

    @property
    def type(self) -> ir.Type:
        """Return its type."""


class ScalarOperation(Protocol):
    """The properties of an operation that expressions read."""

    @property
    def attributes(self) -> ir.OpAttributeMap:
        """Return its attributes."""

    @property
    def operands(self) -> Sequence[TypedValue]:
        """Return its operands."""

    @property
    def results(self) -> Sequence[TypedValue]:
        """Return its results."""


Expression = Callable[[ScalarOperation, list[str]], str]
"""The C expression of an operation, given those of its operands: variables, constants or parenthesized text."""


class ScalarError(ValueError):
    """A type or operation that scalar C lacks."""


_FLOATS = {"f32": "float", "f64": "double"}
_INTEGERS = {1: "bool", 8: "int8_t", 16: "int16_t", 32: "int32_t", 64: "int64_t", 128: "int128_t"}


def c_scalar(kind: ir.Type) -> str:
    """Return the C type of a scalar; integers are signed."""
    if isinstance(kind, ir.IndexType):
        return "int64_t"
    if isinstance(kind, ir.IntegerType) and kind.width in _INTEGERS:
        return _INTEGERS[kind.width]
    if str(kind) == "!llvm.ptr":
        return "void *"
    result = _FLOATS.get(str(kind)) or HALVES.get(str(kind))
    if result is None:
        raise ScalarError(f"C has no type for {kind}")
    return result


def _unsigned(kind: ir.Type) -> str:
    scalar = c_scalar(kind)
    return scalar if scalar == "bool" else f"u{scalar}"


def _bits(kind: ir.Type) -> int:
    return 64 if isinstance(kind, ir.IndexType) else int(kind.width)


def constant_text(op: ir.Operation | ir.OpView) -> str:
    """Return the C constant of an `arith.constant`."""
    attribute, kind = op.attributes["value"], op.results[0].type
    is_float = isinstance(kind, ir.FloatType)
    if not is_float and not isinstance(kind, (ir.IntegerType, ir.IndexType)):
        raise ScalarError(f"C has no type for {kind}")
    return constant_value((ir.FloatAttr if is_float else ir.IntegerAttr)(attribute).value, kind)


def constant_value(value: float, kind: ir.Type) -> str:
    """Return the C constant of a number of a type."""
    if is_half(kind):
        return f"({c_scalar(kind)}){{{half_bits(value, kind)}}}"
    if isinstance(kind, ir.FloatType):
        return _float(value, c_scalar(kind))
    if _bits(kind) == 1:
        return "true" if value else "false"
    low = -(1 << (_bits(kind) - 1))
    value = (int(value) - low) % (1 << _bits(kind)) + low
    if value == low and _bits(kind) >= 32:
        return f"INT{_bits(kind)}_MIN"
    text = str(value) if _bits(kind) < 64 or abs(value) < 1 << 31 else f"INT64_C({value})"
    return f"({text})" if value < 0 else text


def _float(value: float, kind: str) -> str:
    suffix = "f" if kind == "float" else ""
    if math.isnan(value):
        return "NAN" if not suffix else "((float)NAN)"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    text = f"{value:.9g}" if suffix else repr(value)
    if suffix and struct.unpack("f", struct.pack("f", float(text)))[0] != value:
        text = repr(value)
    text = (text if any(mark in text for mark in ".en") else f"{text}.0") + suffix
    return f"({text})" if text.startswith("-") else text


def _infix(sign: str) -> Expression:
    return lambda op, at: f"{at[0]} {sign} {at[1]}"


def _wrapping(sign: str) -> Expression:
    """Return sums and products that wrap around; C's signed ones may not."""

    def text(op: ScalarOperation, at: list[str]) -> str:
        kind = op.results[0].type
        if isinstance(kind, ir.IndexType):
            return f"{at[0]} {sign} {at[1]}"
        if _bits(kind) == 1:
            return f"({at[0]} {sign} {at[1]}) & 1"
        # Small types are promoted to int, in which nothing overflows but a product of two uint16_t.
        wide = _unsigned(kind) if _bits(kind) >= 32 else "uint32_t"
        return f"({c_scalar(kind)})(({wide}){at[0]} {sign} ({wide}){at[1]})"

    return text


def _wrapping_index(sign: str) -> Expression:
    return lambda op, at: f"(int64_t)((uint64_t){at[0]} {sign} (uint64_t){at[1]})"


def _as_unsigned(sign: str) -> Expression:
    def text(op: ScalarOperation, at: list[str]) -> str:
        kind = op.results[0].type
        return f"({c_scalar(kind)})(({_unsigned(kind)}){at[0]} {sign} ({_unsigned(kind)}){at[1]})"

    return text


def _shift_left(op: ScalarOperation, at: list[str]) -> str:
    kind = op.results[0].type
    wide = _unsigned(kind) if _bits(kind) >= 32 else "uint32_t"
    return f"({c_scalar(kind)})(({wide}){at[0]} << {_amount(kind, at[1])})"


def _amount(kind: ir.Type, text: str) -> str:
    """Return the bits to shift by: C has no shifts by the width and more, whose results rules do not use."""
    return text if text.isdigit() else f"({text} & {max(_bits(kind), 32) - 1})"


def _shift_right(op: ScalarOperation, at: list[str]) -> str:
    return f"{at[0]} >> {_amount(op.results[0].type, at[1])}"


def _shift_right_unsigned(op: ScalarOperation, at: list[str]) -> str:
    kind = op.results[0].type
    return f"({c_scalar(kind)})(({_unsigned(kind)}){at[0]} >> {_amount(kind, at[1])})"


def _cast(op: ScalarOperation, at: list[str]) -> str:
    return f"({c_scalar(op.results[0].type)}){at[0]}"


def _from_unsigned(op: ScalarOperation, at: list[str]) -> str:
    return f"({c_scalar(op.results[0].type)})({_unsigned(op.operands[0].type)}){at[0]}"


def _to_unsigned(op: ScalarOperation, at: list[str]) -> str:
    kind = op.results[0].type
    return f"({c_scalar(kind)})({_unsigned(kind)}){at[0]}"


def _truncate(op: ScalarOperation, at: list[str]) -> str:
    kind = op.results[0].type
    return f"({at[0]} & 1) != 0" if _bits(kind) == 1 else f"({c_scalar(kind)}){at[0]}"


def _extend_signed(op: ScalarOperation, at: list[str]) -> str:
    if _bits(op.operands[0].type) == 1:
        return f"({c_scalar(op.results[0].type)})-(int){at[0]}"
    return _cast(op, at)


def _bitcast(op: ScalarOperation, at: list[str]) -> str:
    source, kind = c_scalar(op.operands[0].type), c_scalar(op.results[0].type)
    return f"((union {{ {source} from; {kind} to; }}){{{at[0]}}}).to"


def _pick(sign: str) -> Expression:
    def text(op: ScalarOperation, at: list[str]) -> str:
        return f"{at[0]} {sign} {at[1]} ? {at[0]} : {at[1]}"

    return text


def _pick_unsigned(sign: str) -> Expression:
    def text(op: ScalarOperation, at: list[str]) -> str:
        kind = _unsigned(op.results[0].type)
        return f"({kind}){at[0]} {sign} ({kind}){at[1]} ? {at[0]} : {at[1]}"

    return text


def _extreme(sign: str, zero: str) -> Expression:
    """Return a minimum or maximum of which NaN is the result if an operand is one; -0 is less than 0."""

    def text(op: ScalarOperation, at: list[str]) -> str:
        a, b = at
        order = f"{a} {sign} {b} || ({a} == {b} && {'!' if zero == 'max' else ''}signbit({a}))"
        return f"{a} != {a} ? {a} : {b} != {b} ? {b} : {order} ? {a} : {b}"

    return text


def _number(name: str) -> Expression:
    return lambda op, at: f"{name}{_suffix(op)}({at[0]}, {at[1]})"


def _suffix(op: ScalarOperation) -> str:
    return "f" if c_scalar(op.results[0].type) == "float" else ""


_SIGNED = ("==", "!=", "<", "<=", ">", ">=")
_ORDERED = {1: "==", 2: ">", 3: ">=", 4: "<", 5: "<="}


def _compare_integers(op: ScalarOperation, at: list[str]) -> str:
    predicate = ir.IntegerAttr(op.attributes["predicate"]).value
    kind = op.operands[0].type
    if predicate < 6:
        if _bits(kind) == 1 and predicate > 1:  # a signed bit is 0 or -1
            return f"{at[1]} {_SIGNED[predicate]} {at[0]}"
        return f"{at[0]} {_SIGNED[predicate]} {at[1]}"
    if at[1] == "0" and predicate in (6, 9):  # compilers warn of comparisons whose result is certain
        return "false" if predicate == 6 else "true"
    unsigned = _unsigned(kind)
    return f"({unsigned}){at[0]} {_SIGNED[predicate - 4]} ({unsigned}){at[1]}"


def _compare_floats(op: ScalarOperation, at: list[str]) -> str:
    predicate, (a, b) = ir.IntegerAttr(op.attributes["predicate"]).value, at
    unordered = f"{a} != {a} || {b} != {b}"
    if predicate in (0, 15):
        return "false" if predicate == 0 else "true"
    if predicate in _ORDERED:
        return f"{a} {_ORDERED[predicate]} {b}"
    if predicate == 6:
        return f"{a} < {b} || {a} > {b}"
    if predicate == 7:
        return f"!({unordered})"
    if predicate == 14:
        return unordered
    if predicate == 13:
        return f"{a} != {b}"
    return f"{unordered} || {a} {_ORDERED[predicate - 7]} {b}"


def _floor_divide(op: ScalarOperation, at: list[str]) -> str:
    a, b = at
    return f"{a} / {b} - ({a} % {b} != 0 && ({a} < 0) != ({b} < 0))"


def _ceil_divide(op: ScalarOperation, at: list[str]) -> str:
    a, b = at
    return f"{a} / {b} + ({a} % {b} != 0 && ({a} < 0) == ({b} < 0))"


def _count_bits(op: ScalarOperation, at: list[str]) -> str:
    return f"__builtin_popcountll(({_unsigned(op.results[0].type)}){at[0]})"


def _leading_zeros(op: ScalarOperation, at: list[str]) -> str:
    bits, kind = _bits(op.results[0].type), _unsigned(op.results[0].type)
    return f"{at[0]} ? __builtin_clzll(({kind}){at[0]}) - {64 - bits} : {bits}"


def _trailing_zeros(op: ScalarOperation, at: list[str]) -> str:
    bits, kind = _bits(op.results[0].type), _unsigned(op.results[0].type)
    return f"{at[0]} ? __builtin_ctzll(({kind}){at[0]}) : {bits}"


def _multiply_add(op: ScalarOperation, at: list[str]) -> str:
    if "contract" in str(
        op.attributes["fastmath"]
    ):  # two roundings are permitted: no call where there is no instruction
        return f"{at[0]} * {at[1]} + {at[2]}"
    return f"fma{_suffix(op)}({at[0]}, {at[1]}, {at[2]})"


def _pointer(op: ScalarOperation, at: list[str]) -> str:
    return f"(void *)(intptr_t){at[0]}"


EXPRESSIONS: dict[str, Expression] = {
    **{f"arith.{name}f": _infix(sign) for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("div", "/"))},
    **{f"arith.{name}i": _wrapping(sign) for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*"))},
    **{f"arith.{name}i": _infix(sign) for name, sign in (("and", "&"), ("or", "|"), ("xor", "^"))},
    "arith.negf": lambda op, at: f"-{at[0]}",
    "arith.remf": _number("fmod"),
    "arith.divsi": _infix("/"), "arith.remsi": _infix("%"),
    "arith.divui": _as_unsigned("/"), "arith.remui": _as_unsigned("%"),
    "arith.floordivsi": _floor_divide, "arith.ceildivsi": _ceil_divide,
    "arith.shli": _shift_left, "arith.shrsi": _shift_right, "arith.shrui": _shift_right_unsigned,
    "arith.maxsi": _pick(">"), "arith.minsi": _pick("<"),
    "arith.maxui": _pick_unsigned(">"), "arith.minui": _pick_unsigned("<"),
    "arith.maximumf": _extreme(">", "max"), "arith.minimumf": _extreme("<", "min"),
    "arith.maxnumf": _number("fmax"), "arith.minnumf": _number("fmin"),
    "arith.cmpi": _compare_integers, "arith.cmpf": _compare_floats,
    "arith.select": lambda op, at: f"{at[0]} ? {at[1]} : {at[2]}",
    "arith.extf": _cast, "arith.truncf": _cast, "arith.sitofp": _cast, "arith.fptosi": _cast,
    "arith.index_cast": _cast, "arith.index_castui": _from_unsigned,
    "arith.extsi": _extend_signed, "arith.extui": _from_unsigned, "arith.trunci": _truncate,
    "arith.uitofp": _from_unsigned, "arith.fptoui": _to_unsigned, "arith.bitcast": _bitcast,
    "math.absf": lambda op, at: f"fabs{_suffix(op)}({at[0]})",
    "math.copysign": _number("copysign"),
    "math.fma": _multiply_add,
    "math.sqrt": lambda op, at: f"sqrt{_suffix(op)}({at[0]})",
    "math.floor": lambda op, at: f"floor{_suffix(op)}({at[0]})",
    "math.ceil": lambda op, at: f"ceil{_suffix(op)}({at[0]})",
    "math.trunc": lambda op, at: f"trunc{_suffix(op)}({at[0]})",
    "math.roundeven": lambda op, at: f"rint{_suffix(op)}({at[0]})",
    "math.round": lambda op, at: f"round{_suffix(op)}({at[0]})",
    "math.ctpop": _count_bits, "math.ctlz": _leading_zeros, "math.cttz": _trailing_zeros,
    "llvm.inttoptr": _pointer,
}  # fmt: skip
"""The C expressions of scalar operations."""
WRAPPING = {f"arith.{name}i": _wrapping_index(sign) for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*"))}
"""The C expressions of sums and products of indices that may overflow."""
