"""Elementwise arithmetic, comparison, logic and conversion."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mirlo.frontends.builder import UnsupportedOperation
from mirlo.frontends.stablehlo.operation import StablehloOperation
from mirlo.frontends.stablehlo.regions import apply
from mirlo.frontends.stablehlo.registry import CONVERTERS, converter, of_parts
from mirlo.frontends.tensor import Tensor

SAME = {
    "abs": "abs", "cbrt": "cbrt", "ceil": "ceil", "cosine": "cos", "exponential": "exp",
    "exponential_minus_one": "expm1", "floor": "floor", "is_finite": "isfinite", "log": "log", "log_plus_one": "log1p",
    "logistic": "sigmoid", "negate": "negative", "round_nearest_even": "round", "rsqrt": "rsqrt", "sine": "sin",
    "sqrt": "sqrt", "tan": "tan", "tanh": "tanh",
    "add": "add", "and": "bitwise_and", "maximum": "maximum", "minimum": "minimum", "multiply": "multiply",
    "not": "bitwise_not", "or": "bitwise_or", "xor": "bitwise_xor",
    "atan2": "atan2", "divide": "divide", "power": "power", "remainder": "fmod", "subtract": "subtract",
    "chlo.acos": "acos", "chlo.acosh": "acosh", "chlo.asin": "asin", "chlo.asinh": "asinh", "chlo.atan": "atan",
    "chlo.atanh": "atanh", "chlo.cosh": "cosh", "chlo.sinh": "sinh", "chlo.tan": "tan", "chlo.erf": "erf",
    "chlo.erfc": "erfc", "chlo.is_inf": "isinf", "chlo.square": "square",
}  # fmt: skip
"""Operations that are an operator of relax under another name."""
DIRECTIONS = {
    "EQ": "equal", "NE": "not_equal", "LT": "less", "LE": "less_equal", "GT": "greater", "GE": "greater_equal",
}  # fmt: skip


def _same(name: str) -> Callable[[StablehloOperation], Tensor]:
    return lambda op: op.elementwise(name, *op.operands)


for _name, _operator in SAME.items():
    CONVERTERS[_name] = _same(_operator)


@converter("compare")
def compare(op: StablehloOperation) -> Tensor:
    """Convert `compare`; the total order of floats differs from the usual one for NaN and -0 only."""
    if op.word("compare_type") == "TOTALORDER" and op.type(0).dtype.is_float:
        return op.elementwise(DIRECTIONS[op.word("comparison_direction")], *(_ordered(op, x) for x in op.operands))
    return op.elementwise(DIRECTIONS[op.word("comparison_direction")], *op.operands)


def _ordered(op: StablehloOperation, x: Tensor) -> Tensor:
    """Return integers in the order of floats: negative ones have their bits inverted."""
    bits = x.dtype.bits
    integer = {16: "i16", 32: "i32", 64: "i64"}.get(bits)
    if integer is None:
        raise UnsupportedOperation(
            f"compares {x.dtype} in total order, which is supported for floats of 16 bits and more"
        )
    raw = op.elementwise("bitcast", x, dtype=integer)
    dtype = raw.dtype
    mask = op.constant((1 << bits - 1) - 1, dtype)
    negative = op.elementwise("less", raw, op.constant(0, dtype))
    return op.elementwise("where", negative, op.elementwise("bitwise_xor", raw, mask), raw)


@converter("select")
def select(op: StablehloOperation) -> Tensor:
    return op.elementwise("where", *op.operands)


@converter("clamp")
def clamp(op: StablehloOperation) -> Tensor:
    """Convert `clamp`; constant bounds become those of `clip`."""
    low, x, high = op.operands
    bounds = op.scalar(0), op.scalar(2)
    if x.dtype.is_float and bounds[0] is not None and bounds[1] is not None:
        least, most = float(bounds[0]), float(bounds[1])
        if least <= most:
            return op.elementwise("clip", x, min=least, max=most)
    return op.elementwise("minimum", op.elementwise("maximum", x, low), high)


@converter("convert")
def convert(op: StablehloOperation) -> Tensor:
    """Convert `convert`: floats outside of an integer type become its nearest value, NaN 0, as XLA has it."""
    x, target = op.operands[0], op.declared().dtype
    source = x.dtype
    if source is target:
        return x
    if source.is_float and target.is_integer and target.bits >= 8:
        return _saturated(op, x)
    return op.elementwise("cast", x, dtype=target, saturate=False)


def _saturated(op: StablehloOperation, x: Tensor) -> Tensor:
    target = op.declared().dtype
    if x.dtype.bits < 32:
        x = op.elementwise("cast", x, dtype="f32")
    dtype, kind = x.dtype, np.iinfo(target.to_numpy())
    above = op.elementwise("greater_equal", x, op.constant(float(kind.max + 1), dtype))
    outside = op.elementwise("logical_or", above, op.elementwise("isnan", x))
    bounded = op.elementwise("maximum", x, op.constant(float(kind.min), dtype))
    result = op.elementwise("cast", op.elementwise("where", outside, op.constant(0, dtype), bounded), dtype=target)
    return op.elementwise("where", above, op.constant(kind.max, target), result)


@converter("bitcast_convert")
def bitcast_convert(op: StablehloOperation) -> Tensor:
    """Convert `bitcast_convert`: elements of another size are parts of, or made of, those in a last dim."""
    x, target = op.operands[0], op.declared().dtype
    source = x.dtype
    if source.bits == target.bits:
        return op.elementwise("bitcast", x, dtype=target)
    if min(source.bits, target.bits) < 8:
        raise UnsupportedOperation(f"reinterprets {source} as {target}: supported are elements of whole bytes")
    if source.bits > target.bits:
        return _divided(op, _bits_of(op, x))
    if x.rank == 0 or x.shape[-1] != target.bits // source.bits:
        raise UnsupportedOperation(
            f"reinterprets {x.type} as {target}: the last dim must be {target.bits // source.bits}"
        )
    return _united(op, _bits_of(op, x))


def _bits_of(op: StablehloOperation, x: Tensor) -> Tensor:
    unsigned = _unsigned(x.dtype.bits)
    return x if x.dtype.name == unsigned else op.elementwise("bitcast", x, dtype=unsigned)


def _divided(op: StablehloOperation, raw: Tensor) -> Tensor:
    """Return each element as several narrower ones, the lowest bits first."""
    bits, dtype = op.declared().dtype.bits, raw.dtype
    parts = [
        op.elementwise("cast", op.elementwise("shift_right", raw, op.constant(at, dtype)), dtype=_unsigned(bits))
        for at in range(0, dtype.bits, bits)
    ]
    result = op.emit("stack", parts, axis=raw.rank)
    return op.elementwise("bitcast", result, dtype=op.declared().dtype)


def _united(op: StablehloOperation, raw: Tensor) -> Tensor:
    """Return elements that are made of those in the last dim, which have the lowest bits first."""
    target, bits = op.declared().dtype, raw.dtype.bits
    count, last = target.bits // bits, raw.rank - 1
    result: Tensor | None = None
    for i, part in enumerate(op.emit_all("split", raw, axis=last, sizes=(1,) * count)):
        one = op.emit("reshape", part, shape=raw.shape[:-1])
        wide = op.elementwise("cast", one, dtype=_unsigned(target.bits))
        placed = op.elementwise("shift_left", wide, op.constant(i * bits, wide.dtype))
        result = placed if result is None else op.elementwise("bitwise_or", result, placed)
    assert result is not None
    return result if result.dtype is target else op.elementwise("bitcast", result, dtype=target)


@converter("sign")
def sign(op: StablehloOperation) -> Tensor:
    """Convert `sign`, which keeps NaN."""
    x = op.operands[0]
    result = op.elementwise("sign", x)
    return op.elementwise("where", op.elementwise("isnan", x), x, result) if x.dtype.is_float else result


@converter("round_nearest_afz")
def round_nearest_afz(op: StablehloOperation) -> Tensor:
    """Convert `round_nearest_afz`: halves are rounded away from zero."""
    x = op.operands[0]
    whole = op.elementwise("trunc", x)
    apart = op.elementwise("abs", op.elementwise("subtract", x, whole))
    away = op.elementwise("add", whole, op.elementwise("sign", x))
    far = op.elementwise("greater_equal", apart, op.constant(0.5, x.dtype))
    return op.elementwise("where", far, away, whole)


@converter("shift_left", "shift_right_arithmetic", "shift_right_logical")
def shift(op: StablehloOperation) -> Tensor:
    """Convert the shifts; a distance that is not less than the number of bits gives 0, or the sign."""
    x, by = op.operands
    dtype = x.dtype
    distance = by if dtype.is_unsigned else op.elementwise("cast", by, dtype=_unsigned(dtype.bits))
    counter = distance.dtype
    far = op.elementwise("greater_equal", distance, op.constant(dtype.bits, counter))
    if op.name == "shift_right_arithmetic":
        wide = op.elementwise("cast", x, dtype=f"i{dtype.bits}") if dtype.is_unsigned else x
        most = op.elementwise("where", far, op.constant(dtype.bits - 1, counter), distance)
        result = op.elementwise("shift_right", wide, op.elementwise("cast", most, dtype=f"i{dtype.bits}"))
        return op.elementwise("cast", result, dtype=dtype)
    near = op.elementwise("where", far, op.constant(0, counter), distance)
    raw = x if dtype.is_unsigned else op.elementwise("cast", x, dtype=counter)
    name = "shift_left" if op.name == "shift_left" else "shift_right"
    result = op.elementwise(name, raw, near)
    result = op.elementwise("where", far, op.constant(0, counter), result)
    return result if dtype.is_unsigned else op.elementwise("cast", result, dtype=dtype)


def _unsigned(bits: int) -> str:
    return f"u{bits}"


@converter("popcnt")
def popcnt(op: StablehloOperation) -> Tensor:
    """Convert `popcnt`: add up bits in fields of 2, 4, 8 bits, and so on."""
    x = op.operands[0]
    dtype = x.dtype
    raw = x if dtype.is_unsigned else op.elementwise("cast", x, dtype=_unsigned(dtype.bits))
    return op.elementwise("cast", _bit_count(op, raw), dtype=dtype)


@converter("count_leading_zeros")
def count_leading_zeros(op: StablehloOperation) -> Tensor:
    """Convert `count_leading_zeros`: set all bits below the first one, and count the others."""
    x = op.operands[0]
    dtype = x.dtype
    raw = x if dtype.is_unsigned else op.elementwise("cast", x, dtype=_unsigned(dtype.bits))
    distance = 1
    while distance < dtype.bits:
        shifted = op.elementwise("shift_right", raw, op.constant(distance, raw.dtype))
        raw = op.elementwise("bitwise_or", raw, shifted)
        distance *= 2
    return op.elementwise("cast", _bit_count(op, op.elementwise("bitwise_not", raw)), dtype=dtype)


def _bit_count(op: StablehloOperation, raw: Tensor) -> Tensor:
    dtype, bits = raw.dtype, raw.dtype.bits
    width = 1
    while width < bits:
        mask = op.constant(sum(((1 << width) - 1) << at for at in range(0, bits, 2 * width)), dtype)
        high = op.elementwise("shift_right", raw, op.constant(width, dtype))
        raw = op.elementwise("add", op.elementwise("bitwise_and", raw, mask), op.elementwise("bitwise_and", high, mask))
        width *= 2
    return raw


@converter("reduce_precision")
def reduce_precision(op: StablehloOperation) -> Tensor:
    """Convert `reduce_precision` to a type with these bits and back."""
    x = op.operands[0]
    form = op.integer("exponent_bits"), op.integer("mantissa_bits")
    narrow = {(5, 10): "f16", (8, 7): "bf16", (8, 23): "f32", (11, 52): "f64"}.get(form)
    if narrow is None:
        raise UnsupportedOperation(
            f"rounds to {form[0]} bits of exponent and {form[1]} of mantissa, which is not a supported type"
        )
    if narrow == x.dtype.name:
        return x
    return op.elementwise("cast", op.elementwise("cast", x, dtype=narrow), dtype=x.dtype)


@of_parts
@converter("map")
def map_(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert `map`: its region is applied to whole tensors."""
    return apply(op, op.op.regions[0].blocks[0], op.operands)
