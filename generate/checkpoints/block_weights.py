"""Matrices in blocks: codes of a few bits that share a scale."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mirlo.runtime.bit_fields import pack_fields
from mirlo.runtime.dtypes import ELEMENT_TYPES


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

    @cached_property
    def zero_points(self) -> np.ndarray | None:
        """Return offsets as codes: the values of f32 that stand for 0."""
        if self.offsets is None:
            return None
        with np.errstate(all="ignore"):
            zeros: np.ndarray = -self.offsets / self.scales
        return zeros


def pack_codes(codes: np.ndarray, dtype: str) -> np.ndarray:
    """Return codes of a type [rows, elements], one a byte, several in a byte."""
    return pack_fields(codes, ELEMENT_TYPES[dtype].bits)
