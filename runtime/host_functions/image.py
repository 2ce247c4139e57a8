"""Decoding of image files, with Pillow."""

from __future__ import annotations

import io

import numpy as np

from mirlo.runtime.host import host_function

_WEIGHTS = (19595, 38470, 7471)
"""Weights of red, green and blue in gray, in units of 1 / 65536: ITU-R 601-2."""


@host_function("mirlo.image.decode")
def decode(encoded: np.ndarray, *, pixel_format: str) -> np.ndarray:
    """Return the pixels of a file, [height, width, channels]."""
    data = encoded.tobytes()
    pixels = rgb_pixels(data)
    if pixel_format == "BGR":
        return np.ascontiguousarray(pixels[..., ::-1])
    if pixel_format == "Grayscale":
        sums = pixels.astype(np.uint32) @ np.array(_WEIGHTS, np.uint32)
        gray: np.ndarray = ((sums + 0x8000) >> 16).astype(np.uint8)[..., None]
        return gray
    return pixels


def rgb_pixels(data: bytes, most: int | None = None, is_upright: bool = False) -> np.ndarray:
    """Return the pixels of a file, u8[height, width, 3]; those of more than `most` pixels are refused unread.

    With `is_upright` an image is rotated as its file says that the camera was.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise ValueError("images are decoded with Pillow: install it with pip install 'mirlo[images]'") from None
    try:
        with Image.open(io.BytesIO(data)) as image:
            if most is not None and image.width * image.height > most:
                raise ValueError(f"expected up to {most} pixels, found {image.width} x {image.height}")
            upright = ImageOps.exif_transpose(image) if is_upright else image
            if not upright.mode.startswith("I"):
                return np.array(upright.convert("RGB"))
            gray = (np.asarray(upright) >> 8).astype(np.uint8)  # of 16 bits, which conversion to RGB would clip
            return np.repeat(gray[..., None], 3, axis=2)
    except Exception as problem:  # damaged files raise errors of many types
        raise ValueError(f"the image cannot be decoded: {type(problem).__name__}: {problem}") from None
