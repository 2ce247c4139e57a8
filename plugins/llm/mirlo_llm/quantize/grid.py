"""Blocks of weights as codes of a few bits with f16 scales and zero points, as in GPTQ files."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mirlo.extend.quantize import Quantization, block_parameters, nearest_codes


@dataclass(frozen=True, eq=False)
class BlockGrid:
    """The representable values of blocks: (code - zero) * scale."""

    scales: np.ndarray
    """f32[columns, blocks], with values of f16."""
    zeros: np.ndarray
    """u8[columns, blocks], from 1 on, since files store the zero point minus 1."""
    top: int
    """The largest code."""

    def codes(self, weights: np.ndarray) -> np.ndarray:
        """Return the codes of the nearest values of weights [columns, blocks, elements]."""
        return nearest_codes(weights, self.scales, self.zeros.astype(np.float32), self.top).astype(np.uint8)

    def values(self, codes: np.ndarray) -> np.ndarray:
        """Return the values of codes [columns, blocks, elements]."""
        centred = codes.astype(np.float32) - self.zeros[..., None].astype(np.float32)
        values: np.ndarray = centred * self.scales[..., None]
        return values


@dataclass(frozen=True, eq=False)
class QuantizedMatrix:
    """A matrix [columns, K] as codes, with a scale and a zero point for each block of K."""

    codes: np.ndarray
    """u8[columns, K]."""
    scales: np.ndarray
    """f16[columns, blocks]."""
    zeros: np.ndarray
    """u8[columns, blocks]."""
    block: int

    def values(self) -> np.ndarray:
        """Return the values of the codes as f32."""
        scales, zeros = (np.repeat(x.astype(np.float32), self.block, 1) for x in (self.scales, self.zeros))
        values: np.ndarray = (self.codes - zeros) * scales
        return values


def choose_grid(weights: np.ndarray, how: Quantization) -> BlockGrid:
    """Return the grid of weights [columns, blocks, elements]."""
    top = (1 << how.bits) - 1
    scales, zeros = block_parameters(weights, how)
    # Without negative weights a code is lost, as those of 0 begin at 1.
    is_first = zeros == 0
    scales = np.where(is_first, np.maximum(weights.max(-1), 0) / (top - 1), scales)
    rounded = scales.astype(np.float16).astype(np.float32)
    return BlockGrid(rounded, np.where(is_first, 1, zeros).astype(np.uint8), top)


def quantize_nearest(weights: np.ndarray, how: Quantization) -> QuantizedMatrix:
    """Quantize a matrix [columns, K] in blocks by rounding to nearest."""
    columns, depth = weights.shape
    blocks = weights.astype(np.float32).reshape(columns, depth // how.block, how.block)
    grid = choose_grid(blocks, how)
    codes = grid.codes(blocks).reshape(columns, depth)
    return QuantizedMatrix(codes, grid.scales.astype(np.float16), grid.zeros, how.block)
