"""Bits of integers: the complement, and shifts."""

from __future__ import annotations

import math

from mirlo.dialects.core.dtypes import DType
from mirlo.frontends.builder import UnsupportedOperation
from mirlo.frontends.tensor import Tensor, where
from mirlo.frontends.torch.operation import AtenOperation, Operand
from mirlo.frontends.torch.registry import converter

SHIFTS = {"bitwise_left_shift": "shift_left", "bitwise_right_shift": "shift_right", "__lshift__": "shift_left",
          "__rshift__": "shift_right"}  # fmt: skip


@converter(*(f"aten.{name}.{kind}" for name in SHIFTS for kind in ("Tensor", "Scalar", "Tensor_Scalar")))
def shift(op: AtenOperation, x: Tensor, by: Operand) -> Tensor:
    """Convert the shifts; a distance outside of the bits gives 0, or the sign."""
    kind = op.dtype
    if not kind.is_integer:
        raise UnsupportedOperation(f"shifts {kind}")
    name = SHIFTS[op.name.split(".")[1]]
    value, distance = op.operand(x, kind), op.operand(by, kind)
    far = distance >= kind.bits
    if not kind.is_unsigned:
        far = far | (distance < 0)
    if name == "shift_right":
        most = kind.bits if kind.is_unsigned else kind.bits - 1
        return _shifted(op, name, value, where(far, most - (most == kind.bits), distance, kind), far, kind)
    return _shifted(op, name, value, where(far, 0, distance, kind), far, kind)


def _shifted(op: AtenOperation, name: str, value: Tensor, near: Tensor, far: Tensor, kind: DType) -> Tensor:
    result = value.elementwise(name, near)
    if name == "shift_right" and not kind.is_unsigned:
        return result
    return where(far, 0, result, kind)


@converter("aten.bitwise_not.default")
def bitwise_not(op: AtenOperation, x: Tensor) -> Tensor:
    return ~x


FIELDS = {64: (52, 11), 32: (23, 8)}
"""By size of a float, its bits of mantissa and exponent."""


@converter("aten.frexp.Tensor")
def frexp(op: AtenOperation, x: Tensor) -> list[Tensor]:
    """Convert `frexp`: a fraction from 0.5 to 1, and the power of 2 that it is multiplied with."""
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
    """Convert the next float towards another: the next or the previous of its bits as an integer."""
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
