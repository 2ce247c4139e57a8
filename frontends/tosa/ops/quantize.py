"""Rescaling of integers by multipliers and shifts, and tables."""

from __future__ import annotations

import numpy as np

from mirlo.dialects.core.dtypes import dtype
from mirlo.frontends.builder import UnsupportedOperation
from mirlo.frontends.tensor import Tensor, maximum, minimum, where
from mirlo.frontends.tosa.operation import TosaOperation
from mirlo.frontends.tosa.registry import converter

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
        found = f"{int(shift.min())} to {int(shift.max())}"
        raise UnsupportedOperation(f"shifts by {found} bits: expected 1 to {MAX_SHIFT}")
    wide = x.cast("i64")
    point = op.zero_point(3, unsigned_in)
    scaled = apply_scale(wide - point if point else wide, multiplier, shift, op.word("rounding_mode") == "DOUBLE_ROUND")
    point = op.zero_point(4, unsigned_out)
    kind = f"u{target.bits}" if unsigned_out or target.is_unsigned else target.name
    return saturated(scaled + point if point else scaled, kind).bitcast(target)


def _per_channel(op: TosaOperation, index: int) -> np.ndarray:
    """Return multipliers or shifts: one for all, or one for each element of the last dim."""
    known = op.operands[index].constant
    if known is None:
        raise UnsupportedOperation("has multipliers or shifts that are no constants, which is not supported")
    return known.reshape(-1).astype(np.int64)


def apply_scale(x: Tensor, multiplier: np.ndarray, shift: np.ndarray, is_double: bool = False) -> Tensor:
    """Return `(x * multiplier + half) >> shift` of i64; `is_double` rounds away from zero before, as TOSA has it."""
    half = np.left_shift(np.int64(1), shift - 1)
    product = x * _constant(x, multiplier)
    rounded = product + _constant(x, half)
    if is_double and int(shift.max()) > 31:
        once = np.where(shift > 31, np.int64(1 << 30), 0)
        rounded = rounded + where(x < 0, _constant(x, -once), _constant(x, once))
    return rounded >> _constant(x, shift)


def _constant(x: Tensor, numbers: np.ndarray) -> Tensor:
    return x.like(numbers.reshape(()) if numbers.size == 1 else numbers)


def saturated(x: Tensor, kind: str) -> Tensor:
    """Return integers bounded by a type's least and largest, in that type."""
    limits = np.iinfo(dtype(kind).to_numpy())
    if limits.bits >= x.dtype.bits:
        return x.cast(kind)
    return minimum(maximum(x, int(limits.min)), int(limits.max)).cast(kind)


@converter("table")
def table(op: TosaOperation) -> Tensor:
    """Convert `table`: bytes are positions; of 16 bits, 9 are the position and 7 the way to the next entry."""
    x, entries = op.operands
    if x.dtype.bits == 8:
        return entries.gather(x.cast("i32") + 128)
    wide = x.cast("i32")
    position, part = (wide >> 7) + 256, wide & 127
    first, following = (entries.gather(index).cast("i32") for index in (position, position + 1))
    return (first << 7) + (following - first) * part
