"""Elementwise arithmetic, comparison, logic and conversion."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirlo.extend.frontend import Tensor, UnsupportedOperation, maximum, minimum, stack, where
from mirlo.extend.library import count_leading_zeros, count_ones, saturating_cast
from mirlo_stablehlo.enumerations import COMPARISONS
from mirlo_stablehlo.operation import StablehloOperation
from mirlo_stablehlo.regions import apply
from mirlo_stablehlo.registry import converter, of_parts


@converter("compare")
def compare(op: StablehloOperation) -> Tensor:
    """Convert `compare`; the total order of floats differs from the usual one only for NaN and -0."""
    if op.word("compare_type") == "TOTALORDER" and op.type(0).dtype.is_float:
        left, right = (_ordered(x) for x in op.operands)
    else:
        left, right = op.operands
    return left.elementwise(COMPARISONS[op.word("comparison_direction")], right)


def _ordered(x: Tensor) -> Tensor:
    """Return integers in the total order of floats: the bits of negative ones are inverted."""
    bits = x.dtype.bits
    integer = {16: "i16", 32: "i32", 64: "i64"}.get(bits)
    if integer is None:
        raise UnsupportedOperation(
            f"compares {x.dtype} in total order, which is supported for floats of 16 bits and more"
        )
    raw = x.bitcast(integer)
    return where(raw < 0, raw ^ (1 << bits - 1) - 1, raw)


@converter("clamp")
def clamp(op: StablehloOperation) -> Tensor:
    """Convert `clamp`; with constant bounds, to `clip`."""
    low, x, high = op.operands
    bounds = op.scalar(0), op.scalar(2)
    if x.dtype.is_float and bounds[0] is not None and bounds[1] is not None:
        least, most = float(bounds[0]), float(bounds[1])
        if least <= most:
            return x.clip(least=least, most=most)
    return minimum(maximum(x, low), high)


@converter("divide")
def divide(op: StablehloOperation) -> Tensor:
    """Convert `divide`; an integer divided by 0 is -1, with all bits set, as in XLA."""
    x, y = op.operands
    ones = np.iinfo(y.dtype.to_numpy()).max if y.dtype.is_unsigned else -1
    return where(y.equals(0), ones, x / y, y.dtype) if _may_be_zero(y) else x / y


@converter("remainder")
def remainder(op: StablehloOperation) -> Tensor:
    """Convert `remainder`; an integer modulo 0 is the integer itself, as in XLA."""
    x, y = op.operands
    return where(y.equals(0), x, x.fmod(y)) if _may_be_zero(y) else x.fmod(y)


def _may_be_zero(divisors: Tensor) -> bool:
    known = divisors.array
    return divisors.dtype.is_integer and (known is None or bool(np.any(known == 0)))


@converter("convert")
def convert(op: StablehloOperation) -> Tensor:
    """Convert `convert`: floats out of the range of an integer type become its nearest value, NaN 0, as in XLA."""
    x, target = op.operands[0], op.declared().dtype
    source = x.dtype
    if source is target:
        return x
    if source.is_float and target.is_integer and target.bits >= 8:
        return saturating_cast(x, target)
    return x.cast(target)


@converter("bitcast_convert")
def bitcast_convert(op: StablehloOperation) -> Tensor:
    """Convert `bitcast_convert`: elements are split into, or joined from, those in a last dim."""
    x, target = op.operands[0], op.declared().dtype
    source = x.dtype
    if source.bits == target.bits:
        return x.bitcast(target)
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
    return x if x.dtype.name == unsigned else x.bitcast(unsigned)


def _divided(op: StablehloOperation, raw: Tensor) -> Tensor:
    """Return each element as several narrower ones, the lowest bits first."""
    bits, dtype = op.declared().dtype.bits, raw.dtype
    parts = [(raw >> at).cast(_unsigned(bits)) for at in range(0, dtype.bits, bits)]
    result = stack(parts, raw.rank)
    return result.bitcast(op.declared().dtype)


def _united(op: StablehloOperation, raw: Tensor) -> Tensor:
    """Return wider elements joined from those in the last dim, the lowest bits first."""
    target, bits = op.declared().dtype, raw.dtype.bits
    count, last = target.bits // bits, raw.rank - 1
    result: Tensor | None = None
    for i, part in enumerate(raw.split((1,) * count, last)):
        one = part.reshape(raw.shape[:-1])
        wide = one.cast(_unsigned(target.bits))
        placed = wide << i * bits
        result = placed if result is None else result | placed
    assert result is not None
    return result if result.dtype is target else result.bitcast(target)


@converter("sign")
def sign(op: StablehloOperation) -> Tensor:
    """Convert `sign`, which keeps NaN."""
    x = op.operands[0]
    result = x.sign()
    return where(x.isnan(), x, result) if x.dtype.is_float else result


@converter("round_nearest_afz")
def round_nearest_afz(op: StablehloOperation) -> Tensor:
    """Convert `round_nearest_afz`: halves are rounded away from zero."""
    x = op.operands[0]
    whole = x.trunc()
    apart = abs(x - whole)
    away = whole + x.sign()
    far = apart >= 0.5
    return where(far, away, whole)


@converter("shift_left", "shift_right_arithmetic", "shift_right_logical")
def shift(op: StablehloOperation) -> Tensor:
    """Convert the shifts; a distance of at least the number of bits gives 0, or the sign."""
    x, by = op.operands
    dtype = x.dtype
    distance = by if dtype.is_unsigned else by.cast(_unsigned(dtype.bits))
    counter = distance.dtype
    far = distance >= dtype.bits
    if op.name == "shift_right_arithmetic":
        wide = x.cast(f"i{dtype.bits}") if dtype.is_unsigned else x
        most = where(far, dtype.bits - 1, distance)
        result = wide >> most.cast(f"i{dtype.bits}")
        return result.cast(dtype)
    near = where(far, 0, distance)
    raw = x if dtype.is_unsigned else x.cast(counter)
    result = where(far, 0, raw << near if op.name == "shift_left" else raw >> near)
    return result if dtype.is_unsigned else result.cast(dtype)


def _unsigned(bits: int) -> str:
    return f"u{bits}"


@converter("popcnt", "count_leading_zeros")
def count_bits(op: StablehloOperation) -> Tensor:
    x = op.operands[0]
    raw = x if x.dtype.is_unsigned else x.cast(_unsigned(x.dtype.bits))
    return (count_ones if op.name == "popcnt" else count_leading_zeros)(raw).cast(x.dtype)


@converter("reduce_precision")
def reduce_precision(op: StablehloOperation) -> Tensor:
    """Convert `reduce_precision`: round to a type with these bits and back."""
    x = op.operands[0]
    form = op.integer("exponent_bits"), op.integer("mantissa_bits")
    narrow = {(5, 10): "f16", (8, 7): "bf16", (8, 23): "f32", (11, 52): "f64"}.get(form)
    if narrow is None:
        raise UnsupportedOperation(
            f"rounds to {form[0]} bits of exponent and {form[1]} of mantissa, which is not a supported type"
        )
    if narrow == x.dtype.name:
        return x
    return x.cast(narrow).cast(x.dtype)


@of_parts
@converter("map")
def map_(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert `map`: its region is applied to whole tensors."""
    return apply(op, op.op.regions[0].blocks[0], op.operands)
