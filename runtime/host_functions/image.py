"""Decoding of image files: PNG, BMP and PNM natively, other formats with Pillow."""

from __future__ import annotations

import io

import numpy as np

from mirlo.runtime.host import host_function
from mirlo.runtime.images import bmp, png, pnm

_WEIGHTS = (19595, 38470, 7471)
"""Weights of red, green and blue in gray, in units of 1 / 65536: ITU-R 601-2."""


@host_function("mirlo.image.decode")
def decode(encoded: np.ndarray, *, pixel_format: str) -> np.ndarray:
    """Return the pixels of a file, [height, width, channels]."""
    data = encoded.tobytes()
    pixels = _rgb(data)
    if pixel_format == "BGR":
        return np.ascontiguousarray(pixels[..., ::-1])
    if pixel_format == "Grayscale":
        sums = pixels.astype(np.uint32) @ np.array(_WEIGHTS, np.uint32)
        gray: np.ndarray = ((sums + 0x8000) >> 16).astype(np.uint8)[..., None]
        return gray
    return pixels


def _rgb(data: bytes) -> np.ndarray:
    if data.startswith(png.SIGNATURE):
        return png.decode(data)
    if data.startswith(bmp.SIGNATURE):
        return bmp.decode(data)
    if data.startswith(pnm.SIGNATURES):
        return pnm.decode(data)
    try:
        from PIL import Image
    except ImportError:
        raise ValueError(
            "only PNG, BMP and PNM files are decoded without Pillow: install it with pip install 'mirlo[images]'"
        ) from None
    try:
        with Image.open(io.BytesIO(data)) as image:
            return np.array(image.convert("RGB"))
    except (OSError, Image.DecompressionBombError) as problem:
        raise ValueError(f"the image cannot be decoded: {problem}") from None
