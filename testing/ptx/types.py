"""Types of PTX as numpy's: registers hold bits, instructions look at them as their type says."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]

BITS: dict[int, Any] = {
    1: np.dtype(np.uint8), 2: np.dtype(np.uint16), 4: np.dtype(np.uint32), 8: np.dtype(np.uint64),
    16: np.dtype(np.complex128),
}  # fmt: skip
"""How memory is moved, by bytes; 16 at a time as something that numpy has of this size."""

TYPES: dict[str, Any] = {
    "pred": np.dtype(np.bool_),
    **{f"{sign}{8 * size}": BITS[size] for sign in "bu" for size in (1, 2, 4, 8)},
    **{f"s{8 * size}": np.dtype(f"i{size}") for size in (1, 2, 4, 8)},
    "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64), "tf32": np.dtype(np.float32),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "f16x2": np.dtype(np.float16), "bf16x2": np.dtype(ml_dtypes.bfloat16),
    "f32x2": np.dtype(np.float32), "s16x2": np.dtype(np.int16), "u16x2": np.dtype(np.uint16),
}  # fmt: skip
"""By the name that PTX has for a type; of the packed ones that of their parts."""

FLOATS = ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2", "f32x2")
PACKED = ("f16x2", "bf16x2", "f32x2", "s16x2", "u16x2")


def storage(kind: str) -> Any:
    """Return the type in which a register of a declared type is stored."""
    return TYPES["pred"] if kind == "pred" else BITS[TYPES[kind].itemsize * (2 if kind in PACKED else 1)]


def is_signed(kind: str) -> bool:
    """Return whether a type has negative integers."""
    return kind[0] == "s"


def seen_as(bits: Array, kind: str) -> Array:
    """Return the bits of a register as numbers of a type; in a wider register they are the low bits.

    What is packed has a second axis.
    """
    dtype = TYPES[kind]
    if kind in PACKED:
        return np.ascontiguousarray(bits).view(dtype).reshape(-1, 2)
    if bits.dtype.itemsize == dtype.itemsize:
        return bits if bits.dtype is dtype else bits.view(dtype)
    return bits.astype(BITS[dtype.itemsize]).view(dtype)


def kept_as(value: Array, kind: Any) -> Array:
    """Return numbers as the bits of a register, with sign extension for signed types."""
    if value.ndim == 2:
        value = np.ascontiguousarray(value).reshape(-1).view(BITS[2 * value.dtype.itemsize])
    if value.dtype is kind:
        return value
    if value.dtype.itemsize == kind.itemsize:
        return value.view(kind)
    if value.dtype.kind == "i":
        return value.astype(f"i{kind.itemsize}").view(kind)
    return value.view(BITS[value.dtype.itemsize]).astype(kind)
