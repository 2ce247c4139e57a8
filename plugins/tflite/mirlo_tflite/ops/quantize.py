"""Rescaling of integers by multipliers and shifts, and tables."""

from __future__ import annotations

import numpy as np

from mirlo.extend.frontend import Tensor, UnsupportedOperation, dtype, maximum, minimum
from mirlo_tflite.operation import TosaOperation
from mirlo_tflite.registry import converter

MAX_SHIFT = 62


@converter("rescale")
def rescale(op: TosaOperation) -> Tensor:
    """Convert `rescale`: `((x - zero point) * multiplier + half) >> shift`, plus the other zero point, saturated."""
    x, target = op.operands[0], op.declared().dtype
    unsigned_in, unsigned_out = op.flag("input_unsigned"), op.flag("output_unsigned")
    if unsigned_in and not x.dtype.is_unsigned:
        x = x.bitcast(f"u{x.dtype.bits}")
    multiplier, shift = (_per_channel(op, index) for index in (1, 2))
    if int(shift.min()) < 1 or int(shift.max()) > MAX_SHIFT:
        shifts = f"{int(shift.min())} to {int(shift.max())}"
        raise UnsupportedOperation(f"shifts by {shifts} bits: expected 1 to {MAX_SHIFT}")
    kind = f"u{target.bits}" if unsigned_out or target.is_unsigned else target.name
    scaled = rescaled(
        x, multiplier, shift, kind, input_zero=op.zero_point(3, unsigned_in), zero_point=op.zero_point(4, unsigned_out),
        double_round=op.word("rounding_mode") == "DOUBLE_ROUND",
    )  # fmt: skip
    return scaled.bitcast(target)


def _per_channel(op: TosaOperation, index: int) -> np.ndarray:
    """Return multipliers or shifts: one, or one for each element of the last dim."""
    known = op.operands[index].constant
    if known is None:
        raise UnsupportedOperation("has multipliers or shifts that are no constants, which is not supported")
    return known.reshape(()) if known.size == 1 else known.reshape(-1)


def rescaled(x: Tensor, multiplier: np.ndarray, shift: np.ndarray, kind: str, **attributes: object) -> Tensor:
    """Return integers times multipliers, shifted and saturated."""
    scale = (x.builder.constant(array.astype(np.int32)) for array in (multiplier, shift))
    return x.elementwise("rescale", *scale, dtype=dtype(kind), **attributes)


def saturated(x: Tensor, kind: str) -> Tensor:
    """Clip integers to the range of a type, and convert them."""
    limits = np.iinfo(dtype(kind).to_numpy())
    if limits.bits >= x.dtype.bits:
        return x.cast(kind)
    return minimum(maximum(x, int(limits.min)), int(limits.max)).cast(kind)


@converter("table")
def table(op: TosaOperation) -> Tensor:
    """Convert `table`: bytes are indices; 16-bit elements have 9 bits of index and 7 bits of interpolation."""
    x, entries = op.operands
    if x.dtype.bits == 8:
        return entries.gather(x.cast("i32") + 128)
    wide = x.cast("i32")
    position, part = (wide >> 7) + 256, wide & 127
    first, following = (entries.gather(index).cast("i32") for index in (position, position + 1))
    return (first << 7) + (following - first) * part
