"""Elementwise arithmetic, comparison, logic and choice."""

from __future__ import annotations

import math
from typing import cast

from mirlo.extend.frontend import Tensor, TensorType, UnsupportedOperation, maximum, minimum, where
from mirlo_torch.bounds import require_divisors
from mirlo_torch.operation import AtenOperation, Operand
from mirlo_torch.registry import converter


@converter("aten.fmod.Tensor", "aten.fmod.Scalar")
def fmod(op: AtenOperation, x: Operand, y: Operand) -> Tensor:
    left, right = _divided(op, x, y)
    return left.fmod(right).cast(op.dtype)


@converter("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor")
def remainder(op: AtenOperation, x: Operand, y: Operand) -> Tensor:
    left, right = _divided(op, x, y)
    return (left % right).cast(op.dtype)


def _divided(op: AtenOperation, x: Operand, y: Operand) -> tuple[Tensor, Tensor]:
    """Return the operands of a remainder, in f32 for 16-bit floats."""
    left, right = (op.wide(op.operand(each, op.dtype)) for each in (x, y))
    require_divisors(op, right)
    return left, right


@converter("aten.abs.default", "aten.absolute.default")
def abs_(op: AtenOperation, x: Tensor) -> Tensor:
    return x if x.dtype.is_bool or x.dtype.is_unsigned else abs(x)


@converter("aten.neg.default", "aten.negative.default")
def neg(op: AtenOperation, x: Tensor) -> Tensor:
    if x.dtype.is_unsigned:
        return 0 - x
    return -x


@converter("aten.sign.default", "aten.sgn.default")
def sign(op: AtenOperation, x: Tensor) -> Tensor:
    """Convert `sign`, which is 0 for NaN."""
    if x.dtype.is_bool:
        return x
    if x.dtype.is_unsigned:
        return minimum(x, 1)
    above, below = x > 0, x < 0
    return where(above, 1, where(below, -1, 0, x.dtype), x.dtype)


@converter("aten.isnan.default", "aten.isinf.default", "aten.isfinite.default")
def test_of_floats(op: AtenOperation, x: Tensor) -> Tensor:
    name = op.name.split(".")[1]
    if not x.dtype.is_float:
        return op.constant(name == "isfinite", op.dtype, x.shape)
    return {"isnan": Tensor.isnan, "isinf": Tensor.isinf, "isfinite": Tensor.isfinite}[name](x)


@converter("aten.signbit.default")
def signbit(op: AtenOperation, x: Tensor) -> Tensor:
    return _is_negative(op, x)


def _is_negative(op: AtenOperation, x: Tensor) -> Tensor:
    """Return whether each element has a negative sign; -0 does."""
    kind = x.dtype
    if kind.is_bool:
        return op.constant(False, TensorType.of((), "bool").dtype, x.shape)
    if not kind.is_float:
        return x < 0
    if kind.bits not in (16, 32, 64):
        raise UnsupportedOperation(f"reads the signs of {kind}")
    return x.bitcast(f"i{kind.bits}") < 0


@converter("aten.copysign.Tensor", "aten.copysign.Scalar")
def copysign(op: AtenOperation, x: Tensor, y: Operand) -> Tensor:
    size = abs(x.cast(op.dtype))
    return where(_is_negative(op, op.operand(y, op.dtype)), -size, size, op.dtype)


@converter("aten.add.Tensor", "aten.add.Scalar")
def add(op: AtenOperation, x: Operand, y: Operand, other: Operand = 1, *, alpha: Operand = 1) -> Tensor:
    left, right = _scaled(op, x, y, other if op.name.endswith("Scalar") else alpha)
    return (left + right).cast(op.dtype)


@converter("aten.sub.Tensor", "aten.sub.Scalar", "aten.subtract.Tensor")
def sub(op: AtenOperation, x: Operand, y: Operand, other: Operand = 1, *, alpha: Operand = 1) -> Tensor:
    left, right = _scaled(op, x, y, other if op.name.endswith("Scalar") else alpha)
    return (left - right).cast(op.dtype)


@converter("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(op: AtenOperation, x: Operand, y: Operand, other: Operand = 1, *, alpha: Operand = 1) -> Tensor:
    return sub(op, y, x, other, alpha=alpha)


def _scaled(op: AtenOperation, x: Operand, y: Operand, alpha: Operand) -> tuple[Tensor, Tensor]:
    """Return x and alpha * y, in f32 for 16-bit floats if there is a factor."""
    left, right = op.operand(x, op.dtype), op.operand(y, op.dtype)
    if isinstance(alpha, (int, float)) and alpha == 1:
        return left, right
    right = op.wide(right)
    return op.wide(left), right * op.operand(alpha, right.dtype)


@converter("aten.div.Tensor_mode", "aten.div.Scalar_mode", "aten.divide.Tensor_mode", "aten.divide.Scalar_mode")
def div_mode(op: AtenOperation, x: Operand, y: Operand, *, rounding_mode: str | None = None) -> Tensor:
    if rounding_mode is None:
        return op.operand(x, op.dtype) / op.operand(y, op.dtype)
    if rounding_mode == "floor":
        return floor_divide(op, x, y)
    left, right = op.operand(x, op.dtype), op.operand(y, op.dtype)
    if op.dtype.is_float:
        wide = op.wide(left) / op.wide(right)
        return wide.trunc().cast(op.dtype)
    require_divisors(op, right)
    return left / right


@converter("prims.fma.default")
def fma(op: AtenOperation, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return x * y + z


@converter("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(op: AtenOperation, x: Operand, y: Operand) -> Tensor:
    """Convert `floor_divide`: subtract the exact remainder, then divide exactly."""
    left, right = op.operand(x, op.dtype), op.operand(y, op.dtype)
    if not op.dtype.is_float:
        require_divisors(op, right)
        return left // right
    a, b = op.wide(left), op.wide(right)
    kind = a.dtype
    rest = a.fmod(b)
    quotient = (a - rest) / b
    signs = (b < 0).not_equals(rest < 0)
    below = rest.not_equals(0) & signs
    quotient = where(below, quotient - 1, quotient, kind)
    whole = quotient.floor()
    far = quotient - whole > 0.5
    whole = where(far, whole + 1, whole, kind)
    zero = a / b  # infinite or NaN where b is 0, and a signed 0 where the quotient is
    whole = where(quotient.equals(0), zero * 0, whole, kind)
    return where(b.equals(0), zero, whole, kind).cast(op.dtype)


@converter("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar")
def pow_(op: AtenOperation, x: Operand, y: Operand) -> Tensor:
    base = op.operand(x, op.dtype)
    if isinstance(y, (int, float)) and float(y) in (1.0, 2.0):
        return base if y == 1 else base * base
    if isinstance(y, float) and y == 0.5:
        # The square root of -inf is NaN, its power inf.
        return base ** op.operand(y, op.dtype)
    if isinstance(y, int) and y < 0 and op.dtype.is_integer:
        raise UnsupportedOperation("raises integers to a negative power")
    return base ** op.operand(y, op.dtype)


@converter("aten.fmax.default", "aten.fmin.default")
def fmax(op: AtenOperation, x: Tensor, y: Tensor) -> Tensor:
    """Convert `fmax` and `fmin`, which ignore NaN."""
    left, right = x.cast(op.dtype), y.cast(op.dtype)
    result = maximum(left, right) if "fmax" in op.name else minimum(left, right)
    if not op.dtype.is_float:
        return result
    result = where(right.isnan(), left, result, op.dtype)
    return where(left.isnan(), right, result, op.dtype)


@converter("aten.hypot.default")
def hypot(op: AtenOperation, x: Tensor, y: Tensor) -> Tensor:
    a, b = (abs(op.wide(each.cast(op.dtype))) for each in (x, y))
    kind = a.dtype
    high, low = maximum(a, b), minimum(a, b)
    ratio = low / where(high.equals(0), 1, high, kind)
    result = high * (ratio * ratio + 1).sqrt()
    infinite = a.isinf() | b.isinf()
    return where(infinite, math.inf, result, kind).cast(op.dtype)


@converter("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def choose(op: AtenOperation, condition: Tensor, x: Operand, y: Operand) -> Tensor:
    return where(condition.cast("bool"), x, y, op.dtype)


@converter("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(op: AtenOperation, x: Tensor, mask: Tensor, value: Operand) -> Tensor:
    return where(mask, value, x, op.dtype).expand(op.shape)


@converter("aten.clamp.default", "aten.clip.default", "aten.hardtanh.default")
def clamp(op: AtenOperation, x: Tensor, least: Operand | None = None, most: Operand | None = None) -> Tensor:
    y = x.cast(op.dtype)
    limits = [value for value in (least, most) if value is not None]
    numbers = [float(value) for value in limits if isinstance(value, (int, float))]
    in_order = numbers == sorted(numbers) and not any(map(math.isnan, numbers))
    if op.dtype.is_float and len(numbers) == len(limits) and in_order:
        low, high = (None if value is None else float(cast(float, value)) for value in (least, most))
        return y.clip(low, high)
    return _bounded(op, y, least, most)


@converter("aten.clamp.Tensor", "aten.clip.Tensor")
def clamp_tensor(op: AtenOperation, x: Tensor, least: Operand | None = None, most: Operand | None = None) -> Tensor:
    return _bounded(op, x.cast(op.dtype), least, most)


def _bounded(op: AtenOperation, x: Tensor, least: Operand | None, most: Operand | None) -> Tensor:
    if least is not None:
        x = maximum(x, op.operand(least, op.dtype))
    if most is not None:
        x = minimum(x, op.operand(most, op.dtype))
    return x


@converter("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(op: AtenOperation, x: Tensor, least: Operand | None) -> Tensor:
    return clamp(op, x, least)


@converter("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(op: AtenOperation, x: Tensor, most: Operand | None) -> Tensor:
    return clamp(op, x, None, most)


@converter("aten.round.decimals")
def round_decimals(op: AtenOperation, x: Tensor, *, decimals: int = 0) -> Tensor:
    if not x.dtype.is_float:
        return x
    scale = float(10 ** abs(decimals))
    y = op.wide(x)
    result = (y * scale).round() / scale if decimals >= 0 else (y / scale).round() * scale
    return result.cast(op.dtype)
