"""Decoding of image files: formats, depths, orders of channels, and damaged files."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest

from mirlo.runtime.bounded import Bounds
from mirlo.runtime.host_functions.image import _DECODER, decode

Image = pytest.importorskip("PIL.Image")


def pixels(height: int = 11, width: int = 13) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (height, width, 3), np.uint8)


def decoded(data: bytes, pixel_format: str = "RGB") -> np.ndarray:
    return decode(np.frombuffer(data, np.uint8), pixel_format=pixel_format)


def encoded(kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels()).save(buffer, kind)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "BMP", "PPM", "TIFF"])
def test_formats(kind: str) -> None:
    np.testing.assert_array_equal(decoded(encoded(kind)), pixels())


def test_orders_of_channels() -> None:
    data = encoded("PNG")
    np.testing.assert_array_equal(decoded(data, "BGR"), pixels()[..., ::-1])
    gray = np.array(Image.fromarray(pixels()).convert("L"))[..., None]
    np.testing.assert_array_equal(decoded(data, "Grayscale"), gray)


@pytest.mark.parametrize("kind", ["PNG", "PPM"])
def test_sixteen_bits_keep_the_upper_ones(kind: str) -> None:
    deep = np.arange(0, 1 << 16, 257, dtype=np.uint16).reshape(16, 16)
    buffer = io.BytesIO()
    Image.fromarray(deep).save(buffer, kind)
    np.testing.assert_array_equal(decoded(buffer.getvalue())[..., 1], deep >> 8)


def test_transparency_is_ignored() -> None:
    image = Image.fromarray(np.dstack([pixels(), np.full((11, 13), 9, np.uint8)]), "RGBA")
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    np.testing.assert_array_equal(decoded(buffer.getvalue()), pixels())


@pytest.mark.parametrize("kind", ["PNG", "BMP", "PPM"])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_damaged_files_are_refused(kind: str) -> None:
    """Cut at each of some places, or with a byte changed: an error, or an image."""
    data = encoded(kind)
    for cut in (0, 1, 3, 10, len(data) // 2):
        with pytest.raises(ValueError, match="cannot be decoded"):
            decoded(data[:cut])
    rng = np.random.default_rng(0)
    for place, value in zip(rng.integers(0, len(data), 40), rng.integers(0, 256, 40), strict=True):
        changed = bytearray(data)
        changed[place] = value
        try:
            assert decoded(bytes(changed)).ndim == 3
        except ValueError as error:
            assert "cannot be decoded" in str(error)


def test_without_pillow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ValueError, match=r"pip install 'mirlo\[images\]'"):
        decoded(b"")


def test_limits_of_the_process() -> None:
    """Images are decoded with at most 4 GiB of memory and the stack that SECURITY.md states, in 2 to 30 seconds."""
    limits = _DECODER.bounds
    assert max(limits.memory, limits.growth) <= 4 << 30 and limits.stack == Bounds().stack == 8 << 20
    assert 2 <= limits.seconds <= 30
