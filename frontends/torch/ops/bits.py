"""Bits of integers: the complement, and shifts."""

from __future__ import annotations

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
    made = op.apply(name, value, near)
    if name == "shift_right" and not kind.is_unsigned:
        return made
    return op.choose(far, 0, made, kind)


@converter("aten.bitwise_not.default")
def bitwise_not(op: AtenOperation, x: Tensor) -> Tensor:
    return op.apply("bitwise_not", x)
