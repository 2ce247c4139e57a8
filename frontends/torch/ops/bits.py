"""Bits of integers: the complement, and shifts."""

from __future__ import annotations

import math

from mirlo.dialects.core.dtypes import DType
from mirlo.frontends.builder import UnsupportedOperation
from mirlo.frontends.tensor import Tensor
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
    far = op.apply("greater_equal", distance, kind.bits)
    if not kind.is_unsigned:
        far = op.apply("logical_or", far, op.apply("less", distance, 0))
    if name == "shift_right":
        most = kind.bits if kind.is_unsigned else kind.bits - 1
        return _shifted(op, name, value, op.choose(far, most - (most == kind.bits), distance, kind), far, kind)
    return _shifted(op, name, value, op.choose(far, 0, distance, kind), far, kind)


def _shifted(op: AtenOperation, name: str, value: Tensor, near: Tensor, far: Tensor, kind: DType) -> Tensor:
    result = op.apply(name, value, near)
    if name == "shift_right" and not kind.is_unsigned:
        return result
    return op.choose(far, 0, result, kind)


@converter("aten.bitwise_not.default")
def bitwise_not(op: AtenOperation, x: Tensor) -> Tensor:
    return op.apply("bitwise_not", x)


FIELDS = {64: (52, 11), 32: (23, 8)}
"""By size of a float, its bits of mantissa and exponent."""


@converter("aten.frexp.Tensor")
def frexp(op: AtenOperation, x: Tensor) -> list[Tensor]:
    """Convert `frexp`: a fraction from 0.5 to 1, and the power of 2 that it is multiplied with."""
    y = op.wide(x)
    low, high = FIELDS[y.dtype.bits]
    integer, mask, bias = f"i{y.dtype.bits}", (1 << high) - 1, (1 << high - 1) - 1
    is_small = op.apply("less", op.apply("abs", y), math.ldexp(1.0, 1 - bias))
    y = op.choose(is_small, op.apply("multiply", y, math.ldexp(1.0, low + 1)), y, y.dtype)
    raw = op.elementwise("bitcast", y, dtype=integer)
    field = op.apply("bitwise_and", op.apply("shift_right", raw, low), mask)
    rest = op.apply("bitwise_and", raw, ~(mask << low))
    half = op.elementwise("bitcast", op.apply("bitwise_or", rest, bias - 1 << low), dtype=y.dtype)
    is_plain = op.apply("logical_and", op.apply("not_equal", y, 0), op.apply("isfinite", y))
    power = op.apply("subtract", field, op.choose(is_small, bias - 1 + low + 1, bias - 1, raw.dtype))
    results = op.choose(is_plain, half, y, y.dtype), op.choose(is_plain, power, 0, raw.dtype)
    return [op.cast(each, op.result(i).dtype) for i, each in enumerate(results)]


@converter("aten.nextafter.default")
def nextafter(op: AtenOperation, x: Tensor, y: Tensor) -> Tensor:
    """Convert the next float towards another: the next or the previous of its bits as an integer."""
    kind = x.dtype
    integer = f"i{kind.bits}"
    raw = op.elementwise("bitcast", x, dtype=integer)
    away = op.apply("equal", op.apply("less", x, y), op.apply("greater", x, 0))
    stepped = op.apply("add", raw, op.choose(away, 1, -1, raw.dtype))
    least = op.choose(op.apply("greater", y, 0), 1, (1 << kind.bits - 1) + 1, raw.dtype)
    moved = op.elementwise("bitcast", op.choose(op.apply("equal", x, 0), least, stepped, raw.dtype), dtype=kind)
    result = op.choose(op.apply("equal", x, y), y, moved, kind)
    unordered = op.apply("logical_or", op.apply("isnan", x), op.apply("isnan", y))
    return op.choose(unordered, float("nan"), result, kind)
