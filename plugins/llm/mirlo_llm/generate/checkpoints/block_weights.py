"""Block-quantized matrices: codes of a few bits with a scale for each block."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mirlo.extend.quantize import pack_fields, unpack_fields
from mirlo.extend.runtime import ELEMENT_TYPES, numpy_dtype


@dataclass(frozen=True, eq=False)
class BlockWeights:
    """A block-quantized matrix: the value of a code is (code - zero) * scale + offset."""

    shape: tuple[int, int]
    dtype: str
    """Element type of the codes."""
    codes: np.ndarray
    """[rows, bytes]: several in a byte, the lowest bits first."""
    scales: np.ndarray
    """[rows, blocks], f16 or f32."""
    block: int
    zero: int = 0
    table: tuple[float, ...] = ()
    """The table of code values; empty if codes are integers."""
    offsets: np.ndarray | None = None
    """Offsets, f32[rows, blocks]; with them scales are f32 and nonzero, and `zero` is 0."""
    zeros: np.ndarray | None = None
    """Zero points, u8[rows, blocks], if they differ; `zero` is 0 then."""
    order: np.ndarray | None = None
    """The matrix column of each stored element, i64[elements of a row]; None if they are in order."""

    @property
    def bits(self) -> int:
        """Return the bits of a code."""
        return ELEMENT_TYPES[self.dtype].bits

    @property
    def form(self) -> Hashable:
        """Return what is equal for matrices that differ in the elements of their arrays only."""
        arrays = (self.codes, self.scales, self.offsets, self.zeros, self.order)
        kinds = tuple(None if each is None else (each.dtype.name, each.shape) for each in arrays)
        return self.shape, self.dtype, self.block, self.zero, self.table, kinds

    def values(self) -> np.ndarray:
        """Return the elements as f32."""
        codes = self.codes if self.bits == 8 else unpack_fields(self.codes, self.bits)[:, : self.shape[1]]
        if self.bits < 8 and self.dtype.startswith("i"):
            sign = 1 << (self.bits - 1)
            codes = (codes ^ sign).astype(np.int8) - np.int8(sign)
        elif self.bits < 8 and self.dtype.startswith("f"):
            codes = codes.view(numpy_dtype(self.dtype))
        numbers = np.array(self.table, np.float32)[codes] if self.table else codes.astype(np.float32)
        blocks = numbers.reshape(self.shape[0], -1, self.block) - np.float32(self.zero)
        if self.zeros is not None:
            blocks = blocks - self.zeros[:, :, None].astype(np.float32)
        blocks = blocks * self.scales[:, :, None].astype(np.float32)
        if self.offsets is not None:
            blocks = blocks + self.offsets[:, :, None]
        rows: np.ndarray = blocks.reshape(self.shape)
        return rows if self.order is None else rows[:, np.argsort(self.order)]

    @cached_property
    def zero_points(self) -> np.ndarray | None:
        """Return offsets as zero points, f32 in units of codes."""
        if self.offsets is None:
            return None
        with np.errstate(all="ignore"):
            zeros: np.ndarray = -self.offsets / self.scales
        return zeros


def without_zero_scales(codes: np.ndarray, scales: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Replace scales of 0, since zero points are divided by scales; return codes and scales.

    A block with a scale of 0 has the same values with codes of 0 and any other scale.

    Where a scale is 0, codes of 0 with any other one have the same values.
    """
    is_zero = scales == 0
    return codes * np.repeat(~is_zero, block, -1), np.where(is_zero, np.float32(1), scales)


def pack_codes(codes: np.ndarray, dtype: str) -> np.ndarray:
    """Pack codes [rows, elements], one per byte, to several per byte."""
    return pack_fields(codes, ELEMENT_TYPES[dtype].bits)
