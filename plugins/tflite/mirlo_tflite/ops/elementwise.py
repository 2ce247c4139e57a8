"""Elementwise arithmetic, and conversion of elements.

Results that TOSA leaves undefined, such as those of too large shifts, are arbitrary.
"""

from __future__ import annotations

import numpy as np

from mirlo.extend.frontend import Tensor, UnsupportedOperation, maximum, minimum, where
from mirlo.extend.library import count_leading_zeros, saturating_cast
from mirlo_tflite.operation import TosaOperation
from mirlo_tflite.ops.quantize import saturated
from mirlo_tflite.registry import converter


@converter("maximum", "minimum")
def extreme(op: TosaOperation) -> Tensor:
    """Convert the larger or smaller of two elements; NaN wins, unless the operation ignores it."""
    x, y = op.operands
    result = (maximum if op.name == "maximum" else minimum)(x, y)
    return where(x.isnan(), y, where(y.isnan(), x, result)) if op.ignores_nan else result


EXACT_BITS = 32
"""Most bits of integers whose clip bounds f64 represents."""


@converter("clamp")
def clamp(op: TosaOperation) -> Tensor:
    """Convert `clamp`; NaN stays, or becomes the lower bound if the operation ignores it."""
    x = op.operands[0]
    low, high = (op.op.attributes[name].value for name in ("min_val", "max_val"))
    if not x.dtype.is_float:
        limits = np.iinfo(x.dtype.to_numpy())
        least, most = (int(low) if low > limits.min else None), (int(high) if high < limits.max else None)
        if x.dtype.bits > EXACT_BITS:
            bounded = x if least is None else maximum(x, least)
            return bounded if most is None else minimum(bounded, most)
        return x if least is None and most is None else x.clip(least, most)
    finite = {"least": float(low) if np.isfinite(low) else None, "most": float(high) if np.isfinite(high) else None}
    bounded = x.clip(**finite) if any(bound is not None for bound in finite.values()) else x
    return where(x.isnan(), float(low), bounded) if op.ignores_nan else bounded


@converter("mul")
def mul(op: TosaOperation) -> Tensor:
    """Convert `mul`; products of i32 are shifted right, halves up; those of narrower integers are i32."""
    x, y, *_ = op.operands
    if x.dtype.is_float:
        return x * y
    shift = int(op.number(2, "a shift")) if len(op.operands) > 2 else 0
    if not shift:
        return x.cast("i32") * y.cast("i32")
    if not 0 < shift < 63:
        raise UnsupportedOperation(f"shifts by {shift} bits: expected 0 to 62")
    return (x.cast("i64") * y.cast("i64") + (1 << shift - 1) >> shift).cast("i32")


@converter("intdiv")
def intdiv(op: TosaOperation) -> Tensor:
    x, y = op.operands
    return x / where(y.equals(0), 1, y)


@converter("negate")
def negate(op: TosaOperation) -> Tensor:
    """Convert `negate`; bytes are negated around their zero points, and saturate."""
    x = op.operands[0]
    if x.dtype.is_float:
        return -x
    both = sum(op.zero_point(index) for index in range(1, len(op.operands)))
    if x.dtype.bits == 32:
        return both - x if both else -x
    return saturated(both - x.cast("i32"), x.dtype.name)


@converter("arithmetic_right_shift")
def arithmetic_right_shift(op: TosaOperation) -> Tensor:
    """Convert `arithmetic_right_shift`, which may round halves up."""
    x, by = op.operands
    result = x >> by
    if not op.flag("round"):
        return result
    last = (x >> maximum(by - 1, 0)) & 1
    return result + where(by > 0, last, 0)


@converter("logical_left_shift")
def logical_left_shift(op: TosaOperation) -> Tensor:
    x, by = op.operands
    return x << by


@converter("logical_right_shift")
def logical_right_shift(op: TosaOperation) -> Tensor:
    x, by = op.operands
    unsigned = f"u{x.dtype.bits}"
    return (x.bitcast(unsigned) >> by.bitcast(unsigned)).bitcast(x.dtype)


@converter("clz")
def clz(op: TosaOperation) -> Tensor:
    return count_leading_zeros(op.operands[0].bitcast("u32")).cast("i32")


@converter("cast")
def cast(op: TosaOperation) -> Tensor:
    """Convert `cast`: floats are rounded to the nearest integer, halves to the even one, and saturate."""
    x, target = op.operands[0], op.declared().dtype
    if x.array is not None and x.dtype.is_float and target.is_float and x.dtype.bits >= 16 and target.bits >= 16:
        return op.constant(x.array.astype(target.to_numpy()), target, x.shape)
    if x.dtype.is_float and target.is_integer:
        return saturating_cast((x.cast("f32") if x.dtype.bits < 32 else x).round(), target)
    return x.cast(target)


@converter("identity")
def identity(op: TosaOperation) -> Tensor:
    return op.operands[0]


@converter("builtin.unrealized_conversion_cast")
def reinterpret(op: TosaOperation) -> Tensor:
    """Convert a change between signed and unsigned integers with the same bits."""
    if len(op.operands) != 1 or len(op.op.results) != 1:
        raise UnsupportedOperation("joins or divides values of another dialect")
    x, target = op.operands[0], op.declared().dtype
    if x.dtype.is_integer and target.is_integer and x.dtype.bits == target.bits:
        return x.bitcast(target)
    if x.dtype is target:
        return x
    raise UnsupportedOperation(f"makes {target} of {x.dtype}: expected integers of the same size")
