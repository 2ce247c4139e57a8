"""Fourier transforms over the last two dims."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.extend.frontend import Tensor, UnsupportedOperation
from mirlo.extend.library import transform_along
from mirlo_tflite.operation import TosaOperation
from mirlo_tflite.registry import converter


@converter("fft2d")
def fft2d(op: TosaOperation) -> Sequence[Tensor]:
    """Convert `fft2d`; the inverse one does not divide by the number of elements."""
    parts, inverse = list(op.operands), op.flag("inverse")
    for axis in (1, 2):
        parts = transform_along(parts, axis, _length(op, axis), inverse)
    return parts


@converter("rfft2d")
def rfft2d(op: TosaOperation) -> Sequence[Tensor]:
    """Convert `rfft2d`: of the last dim, the first half and one more."""
    x = op.operands[0]
    parts = [x, x.filled(0)]
    for axis in (2, 1):
        parts = transform_along(parts, axis, _length(op, axis), inverse=False)
        if axis == 2:
            parts = [part[..., : _length(op, 2) // 2 + 1] for part in parts]
    return parts


def _length(op: TosaOperation, axis: int) -> int:
    length = op.type(0).shape[axis]
    if not isinstance(length, int):
        raise UnsupportedOperation("needs a known height and width")
    return length
