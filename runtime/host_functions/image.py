"""Decoding of image files, with Pillow, in a bounded process."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

from mirlo.runtime.bounded import BoundedFailure, BoundedRefusal, BoundedWorker, Bounds
from mirlo.runtime.host import host_function

_WEIGHTS = (19595, 38470, 7471)
"""Weights of red, green and blue in gray, in units of 1 / 65536: ITU-R 601-2."""

_DECODER = BoundedWorker("mirlo.runtime.image_process", bounds=Bounds(seconds=30, growth=4 << 30))


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

    With `is_upright` an image is rotated as its file says that the camera was. The file is decoded in a bounded
    process: decoders in C have had errors that files made use of.
    """
    if find_spec("PIL") is None:
        raise ValueError("images are decoded with Pillow: install it with pip install 'mirlo[images]'")
    try:
        size, content = _DECODER.call_alone("decode", data, most=most, is_upright=is_upright)
    except (BoundedFailure, BoundedRefusal) as problem:
        raise ValueError(f"the image cannot be decoded: {problem}") from None
    return np.frombuffer(bytearray(content), np.uint8).reshape(size["height"], size["width"], 3)
