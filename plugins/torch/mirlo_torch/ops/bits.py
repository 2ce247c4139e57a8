"""Bits of integers: the complement, and shifts."""

from __future__ import annotations

import math

from mirlo.extend.frontend import Tensor, UnsupportedOperation, where
from mirlo_torch.operation import AtenOperation, Operand
from mirlo_torch.registry import converter


def _names(*operators: str) -> list[str]:
    return [f"aten.{name}.{kind}" for name in operators for kind in ("Tensor", "Scalar", "Tensor_Scalar")]


@converter(*_names("bitwise_left_shift", "__lshift__"))
def shift_left(op: AtenOperation, x: Tensor, by: Operand) -> Tensor:
    """Convert left shifts; a distance outside of the bits gives 0."""
    value, distance, is_far = _shift(op, x, by)
    return where(is_far, 0, value << where(is_far, 0, distance, op.dtype), op.dtype)


@converter(*_names("bitwise_right_shift", "__rshift__"))
def shift_right(op: AtenOperation, x: Tensor, by: Operand) -> Tensor:
    """Convert right shifts; a distance outside of the bits gives 0, or the sign."""
    value, distance, is_far = _shift(op, x, by)
    result = value >> where(is_far, op.dtype.bits - 1, distance, op.dtype)
    return where(is_far, 0, result, op.dtype) if op.dtype.is_unsigned else result


def _shift(op: AtenOperation, x: Tensor, by: Operand) -> tuple[Tensor, Tensor, Tensor]:
    """Return a value, the distance of the shift, and whether the distance exceeds the bits."""
    kind = op.dtype
    if not kind.is_integer:
        raise UnsupportedOperation(f"shifts {kind}")
    distance = op.operand(by, kind)
    is_far = distance >= kind.bits
    return op.operand(x, kind), distance, is_far if kind.is_unsigned else is_far | (distance < 0)


@converter("aten.bitwise_not.default")
def bitwise_not(op: AtenOperation, x: Tensor) -> Tensor:
    return ~x


FIELDS = {64: (52, 11), 32: (23, 8)}
"""By size of a float, its bits of mantissa and exponent."""


@converter("aten.frexp.Tensor")
def frexp(op: AtenOperation, x: Tensor) -> list[Tensor]:
    """Convert `frexp`: a fraction from 0.5 to 1, and the exponent of 2."""
    y = op.wide(x)
    low, high = FIELDS[y.dtype.bits]
    integer, mask, bias = f"i{y.dtype.bits}", (1 << high) - 1, (1 << high - 1) - 1
    is_small = abs(y) < math.ldexp(1.0, 1 - bias)
    y = where(is_small, y * math.ldexp(1.0, low + 1), y, y.dtype)
    raw = y.bitcast(integer)
    field = raw >> low & mask
    rest = raw & ~(mask << low)
    half = (rest | bias - 1 << low).bitcast(y.dtype)
    is_plain = y.not_equals(0) & y.isfinite()
    power = field - where(is_small, bias - 1 + low + 1, bias - 1, raw.dtype)
    results = where(is_plain, half, y, y.dtype), where(is_plain, power, 0, raw.dtype)
    return [each.cast(op.result(i).dtype) for i, each in enumerate(results)]


@converter("aten.nextafter.default")
def nextafter(op: AtenOperation, x: Tensor, y: Tensor) -> Tensor:
    """Convert `nextafter`: increment or decrement the bits of a float as an integer."""
    kind = x.dtype
    integer = f"i{kind.bits}"
    raw = x.bitcast(integer)
    away = (x < y).equals(x > 0)
    stepped = raw + where(away, 1, -1, raw.dtype)
    least = where(y > 0, 1, (1 << kind.bits - 1) + 1, raw.dtype)
    moved = where(x.equals(0), least, stepped, raw.dtype).bitcast(kind)
    result = where(x.equals(y), y, moved, kind)
    unordered = x.isnan() | y.isnan()
    return where(unordered, float("nan"), result, kind)
