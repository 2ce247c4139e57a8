"""Pixels of images from untrusted files, bytes and arrays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

import numpy as np

from mirlo.extend.runtime import rgb_pixels
from mirlo_llm.generate.errors import GenerationError
from mirlo_llm.generate.json_file import read_bytes

MAX_BYTES = 64 << 20
"""Bytes of the largest file; photographs have up to 30 MB."""
MAX_PIXELS = 1 << 26
"""Pixels of the largest image, 200 MB of RGB; small files may declare any number."""
MAX_ASPECT = 200
"""Largest aspect ratio, since resizing multiplies the longer side, too."""
ImageSource: TypeAlias = "str | os.PathLike[str] | bytes | np.ndarray"
"""The path of a file, the content of one, or pixels: u8[height, width, 3]."""


def read_pixels(image: ImageSource) -> np.ndarray:
    """Return the pixels of an image, u8[height, width, 3]."""
    if isinstance(image, np.ndarray):
        return _checked(image, "an image")
    if isinstance(image, bytes):
        name, content = "an image", image
    elif isinstance(image, (str, os.PathLike)):
        name, content = os.fspath(image), read_bytes(Path(image), MAX_BYTES)
    else:
        raise GenerationError(f"an image is a path, bytes of a file or an array of pixels, found {image!r:.60}")
    if len(content) > MAX_BYTES:
        raise GenerationError(f"{name}: expected up to {MAX_BYTES >> 20} MiB, found {len(content)} bytes")
    try:
        return _checked(rgb_pixels(content, MAX_PIXELS, is_upright=True), name)
    except ValueError as error:
        raise GenerationError(f"{name}: {error}") from None


def _checked(pixels: np.ndarray, name: str) -> np.ndarray:
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
        raise GenerationError(f"{name}: expected u8[height, width, 3], found {pixels.dtype}{list(pixels.shape)}")
    height, width, _ = pixels.shape
    if height * width > MAX_PIXELS or max(height, width) > MAX_ASPECT * min(height, width):
        limits = f"up to {MAX_PIXELS} pixels, and sides of which one is up to {MAX_ASPECT} times the other"
        raise GenerationError(f"{name}: expected {limits}, found {width} x {height}")
    return pixels
