"""Products of a warp's fragments: the formulas of the PTX manual for row and column of each number.

The manual has a figure for each shape; all that are 32 bytes deep are one, with as many numbers in a register of four
bytes as fit: a[row, 4 bytes], 16 rows, two runs of 16 bytes.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

WARP = 32
KINDS = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "s8": np.int8, "u8": np.uint8,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip


def rounded_to_tf32(x: np.ndarray) -> np.ndarray:
    """Rounded to ten bits of fraction, ties away from zero."""
    return ((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32)


def seen(factor: Any) -> Any:
    """What the matrix unit sees of a factor: of f32 it does not look at the last bits."""
    return (factor.view(np.uint32) & 0xFFFFE000).view(np.float32) if factor.dtype == np.float32 else factor


def numbers(registers: list[np.ndarray], kind: str) -> np.ndarray:
    """The numbers in registers, for each thread: registers by numbers, as what they are added up in."""
    parts = [np.ascontiguousarray(register).view(KINDS[kind]).reshape(len(register), -1) for register in registers]
    found: Any = np.stack(parts, 1)
    return seen(found).astype(np.int32 if found.dtype.kind in "iu" else np.float32)


def product(left: np.ndarray, right: np.ndarray, total: np.ndarray) -> np.ndarray:
    """What a warp makes of its fragments: 16 rows, 8 columns."""
    pair = left.shape[2]
    depth = 8 * pair
    a, b = np.zeros((16, depth), left.dtype), np.zeros((depth, 8), right.dtype)
    lanes = np.arange(WARP)
    group, member = lanes >> 2, lanes % 4
    for i in range(pair):
        step = member * pair + i
        for register, (down, along) in enumerate([(0, 0), (8, 0), (0, 4 * pair), (8, 4 * pair)]):
            a[group + down, step + along] = left[lanes, register, i]
        for register, along in enumerate([0, 4 * pair]):
            b[step + along, group] = right[lanes, register, i]
    made = a @ b
    result = np.empty_like(total)
    for i in range(4):
        row, column = group + (0 if i < 2 else 8), member * 2 + (i & 1)
        result[lanes, i] = made[row, column] + total[lanes, i]
    return result
