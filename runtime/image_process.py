"""The process that decodes image files, with Pillow and the libraries in C that it has."""

from __future__ import annotations

import io
from collections.abc import Mapping

from PIL import Image, ImageOps, UnidentifiedImageError

from mirlo.runtime.bounded_process import ArgumentsRefused, Function, Result


def open(content: bytes) -> Mapping[str, Function]:
    """Return the function that decodes a file."""
    Image.init()
    return {"decode": decode}


def decode(content: bytes, most: int | None, is_upright: bool) -> Result:
    """Return the pixels of a file, u8[height, width, 3]; those of more than `most` pixels are refused unread.

    With `is_upright` an image is rotated as its file says that the camera was.
    """
    try:
        with Image.open(io.BytesIO(content)) as image:
            if most is not None and image.width * image.height > most:
                raise ArgumentsRefused(f"expected up to {most} pixels, found {image.width} x {image.height}")
            upright = ImageOps.exif_transpose(image) if is_upright else image
            size = {"height": upright.height, "width": upright.width}
            if not upright.mode.startswith("I"):
                return Result(size, upright.convert("RGB").tobytes())
            return Result(size, _gray_of_16_bits(upright))
    except (ArgumentsRefused, MemoryError):
        raise
    except UnidentifiedImageError:
        raise ArgumentsRefused("it has no format that Pillow knows") from None
    except Exception as problem:  # damaged files raise errors of many types
        raise ArgumentsRefused(f"{type(problem).__name__}: {problem}") from None


def _gray_of_16_bits(image: Image.Image) -> bytes:
    """Return pixels of their upper 8 bits; conversion to RGB would clip them."""
    import numpy as np  # 0.2 s, which other images do not need

    return np.repeat((np.asarray(image) >> 8).astype(np.uint8), 3).tobytes()
