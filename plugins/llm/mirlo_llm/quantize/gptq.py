"""GPTQ: columns of a matrix are rounded one by one, and later columns compensate the error."""

from __future__ import annotations

import numpy as np

from mirlo.extend.quantize import Quantization
from mirlo_llm.quantize.grid import BlockGrid, QuantizedMatrix, choose_grid

DAMPING = 0.01
"""Damping: share of the mean diagonal that is added to it, as in the paper, since H may be singular."""
PART = 128
"""Columns after which the following ones are updated together by a product."""


def quantize_gptq(weights: np.ndarray, hessian: np.ndarray, how: Quantization) -> QuantizedMatrix:
    """Quantize a matrix [columns, K] for inputs X with the Hessian X^T X, minimizing the change of products.

    The groups of scales are in the order of K. A column that no input uses is rounded to nearest.
    """
    columns, depth = weights.shape
    left, factor = weights.astype(np.float32), _inverse_factor(hessian)
    part = max(PART, how.block)
    codes = np.empty((columns, depth), np.uint8)
    grids: list[BlockGrid] = []
    for first in range(0, depth, part):
        end = min(first + part, depth)
        own, errors = left[:, first:end].copy(), np.empty((columns, end - first), np.float32)
        for i, at in enumerate(range(first, end)):
            if at % how.block == 0:
                grids.append(choose_grid(own[:, None, i : i + how.block], how))
            grid, row = grids[-1], factor[at]
            code = grid.codes(own[:, i, None, None])
            codes[:, at] = code[:, 0, 0]
            errors[:, i] = (own[:, i] - grid.values(code)[:, 0, 0]) / row[at]
            own[:, i + 1 :] -= np.outer(errors[:, i], row[at + 1 : end])
        left[:, end:] -= errors @ factor[first:end, end:]
    scales = np.concatenate([grid.scales for grid in grids], 1)
    zeros = np.concatenate([grid.zeros for grid in grids], 1)
    return QuantizedMatrix(codes, scales.astype(np.float16), zeros, how.block)


def _inverse_factor(hessian: np.ndarray) -> np.ndarray:
    """Return the upper triangular U with U^T U = H^-1 for the damped H."""
    matrix = hessian.astype(np.float64)
    diagonal = np.diagonal(matrix)
    unused, places = diagonal == 0, np.arange(len(matrix))
    damping = DAMPING * (float(diagonal.mean()) or 1.0)
    while True:
        damped = matrix.copy()
        damped[places, places] += np.where(unused, 1.0, damping)
        try:
            lower = np.linalg.cholesky(np.linalg.inv(damped))
        except np.linalg.LinAlgError:
            damping *= 10  # rounding made it indefinite
            continue
        upper: np.ndarray = np.ascontiguousarray(lower.T).astype(np.float32)
        return upper
