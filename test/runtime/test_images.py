"""Decoders of image files against Pillow, and damaged files."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from mirlo.runtime.host_functions.image import decode
from mirlo.runtime.images import bmp, png, pnm

Image = pytest.importorskip("PIL.Image")


def pixels(height: int = 11, width: int = 13) -> np.ndarray:
    """Noise beside even areas, so that every filter is used."""
    made = np.random.default_rng(3).integers(0, 256, (height, width, 3), np.uint8)
    made[: height // 2, : width // 2] = 7
    made[height // 2 :] = np.arange(width, dtype=np.uint8)[None, :, None] * 9
    return made


def encoded(mode: str, kind: str, **options: Any) -> tuple[bytes, np.ndarray]:
    image = Image.fromarray(pixels()).convert(mode)
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    expected = image.point(lambda v: v // 256).convert("L") if mode == "I;16" else image
    return buffer.getvalue(), np.array(expected.convert("RGB"))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1"])
def test_png(mode: str) -> None:
    data, expected = encoded(mode, "PNG")
    np.testing.assert_array_equal(png.decode(data), expected)


def test_every_filter_of_png() -> None:
    import struct
    import zlib

    wanted = pixels(10, 5)
    rows, above = [], np.zeros((5, 3), np.uint8)
    for y, row in enumerate(wanted):
        left = np.concatenate([np.zeros((1, 3), np.uint8), row[:-1]]).astype(int)
        corner = np.concatenate([np.zeros((1, 3), np.uint8), above[:-1]]).astype(int)
        up = above.astype(int)
        near = left + up - corner
        distances = np.stack([abs(near - left), abs(near - up), abs(near - corner)])
        paeth = np.choose(distances.argmin(0), [left, up, corner])
        guess = [np.zeros_like(left), left, up, (left + up) // 2, paeth][y % 5]
        rows.append(bytes([y % 5]) + ((row - guess) % 256).astype(np.uint8).tobytes())
        above = row

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 5, 10, 8, 2, 0, 0, 0))
    data = png.SIGNATURE + header + chunk(b"IDAT", zlib.compress(b"".join(rows))) + chunk(b"IEND", b"")
    np.testing.assert_array_equal(png.decode(data), wanted)
    for cut in (3, len(data) // 2, len(data) - 13):
        with pytest.raises(ValueError, match="PNG"):
            png.decode(data[:cut])
    broken = bytearray(data)
    broken[45] ^= 255
    with pytest.raises(ValueError, match="checksum"):
        png.decode(bytes(broken))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "1"])
def test_bmp(mode: str) -> None:
    data, expected = encoded(mode, "BMP")
    if mode == "RGBA":
        expected = np.array(Image.open(io.BytesIO(data)).convert("RGB"))
    np.testing.assert_array_equal(bmp.decode(data), expected)
    with pytest.raises(ValueError, match="truncated"):
        bmp.decode(data[:-5])


@pytest.mark.parametrize("mode", ["RGB", "L", "1"])
def test_pnm(mode: str) -> None:
    data, expected = encoded(mode, "PPM")
    np.testing.assert_array_equal(pnm.decode(data), expected)
    with pytest.raises(ValueError, match="truncated"):
        pnm.decode(data[:-5])


def test_pnm_as_text() -> None:
    gray = b"P2 # a comment\n2 2\n# another\n4\n0 1\n2 4\n"
    np.testing.assert_array_equal(pnm.decode(gray)[..., 0], [[0, 64], [128, 255]])
    np.testing.assert_array_equal(pnm.decode(b"P1 3 1 101")[..., 1], [[0, 255, 0]])


def test_formats_and_channels() -> None:
    data, expected = encoded("RGB", "PNG")
    file = np.frombuffer(data, np.uint8)
    np.testing.assert_array_equal(decode(file, pixel_format="BGR"), expected[..., ::-1])
    gray = np.array(Image.fromarray(expected).convert("L"))[..., None]
    np.testing.assert_array_equal(decode(file, pixel_format="Grayscale"), gray)
    data, expected = encoded("RGB", "TIFF")
    np.testing.assert_array_equal(decode(np.frombuffer(data, np.uint8), pixel_format="RGB"), expected)
    with pytest.raises(ValueError, match="cannot be decoded"):
        decode(np.zeros(100, np.uint8), pixel_format="RGB")
