"""Matrices in blocks: codes of a few bits that share a scale."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mirlo.extend.quantize import pack_fields, unpack_fields
from mirlo.extend.runtime import ELEMENT_TYPES, numpy_dtype


@dataclass(frozen=True, eq=False)
class BlockWeights:
    """A matrix: codes of each row, and a scale for each `block` of them: (code - zero) * scale + offset."""

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
    """What the codes stand for; empty if they are numbers themselves."""
    offsets: np.ndarray | None = None
    """[rows, blocks] of f32; scales are f32 and not 0 then, `zero` is 0."""
    zeros: np.ndarray | None = None
    """[rows, blocks] of u8: the codes of 0, where they differ; `zero` is 0 then."""
    order: np.ndarray | None = None
    """i64[elements of a row]: the columns of the matrix in the order in which rows hold them; None for the same."""

    @property
    def bits(self) -> int:
        """Return the bits of a code."""
        return ELEMENT_TYPES[self.dtype].bits

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
        """Return offsets as zero points in units of codes, as f32."""
        if self.offsets is None:
            return None
        with np.errstate(all="ignore"):
            zeros: np.ndarray = -self.offsets / self.scales
        return zeros


def without_zero_scales(codes: np.ndarray, scales: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Return codes, one a byte, and scales that are not 0, of blocks with offsets: zero points divide by scales.

    Where a scale is 0, codes of 0 with any other one have the same values.
    """
    is_zero = scales == 0
    return codes * np.repeat(~is_zero, block, -1), np.where(is_zero, np.float32(1), scales)


def pack_codes(codes: np.ndarray, dtype: str) -> np.ndarray:
    """Pack codes [rows, elements], one per byte, to several per byte."""
    return pack_fields(codes, ELEMENT_TYPES[dtype].bits)
