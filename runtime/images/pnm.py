"""Decoder of PNM: bitmaps, gray maps and pixel maps, text or binary (P1 to P6)."""

from __future__ import annotations

import re

import numpy as np

SIGNATURES = (b"P1", b"P2", b"P3", b"P4", b"P5", b"P6")
MAX_PIXELS = 1 << 28
_TOKEN = re.compile(rb"(?:\s|#[^\n]*\n)*(\d+)")


def decode(data: bytes) -> np.ndarray:
    """Return the pixels of a PNM file; raise ValueError if it is damaged."""
    kind = int(data[1:2]) if data[:2] in SIGNATURES else 0
    if not kind:
        raise ValueError("this is no PNM file")
    at, numbers = 2, []
    for _ in range(2 if kind in (1, 4) else 3):
        found = _TOKEN.match(data, at)
        if found is None or len(found[1]) > 9:
            raise ValueError("the header of the PNM file is damaged")
        numbers.append(int(found[1]))
        at = found.end()
    width, height, most = numbers if len(numbers) == 3 else (*numbers, 1)
    if not 0 < width * height <= MAX_PIXELS or not 0 < most < 65536:
        raise ValueError(f"the PNM file has {width} x {height} pixels of up to {most}")
    channels = 3 if kind in (3, 6) else 1
    values = (
        _text(data[at:], kind, width * height * channels)
        if kind < 4
        else _binary(data[at + 1 :], kind, width, height, most)
    )
    scaled = 255 - values * 255 if kind in (1, 4) else (values.astype(np.uint32) * 255 + most // 2) // most
    pixels = scaled.astype(np.uint8).reshape(height, width, channels)
    return pixels if channels == 3 else np.repeat(pixels, 3, axis=2)


def _text(body: bytes, kind: int, count: int) -> np.ndarray:
    plain = re.sub(rb"#[^\n]*", b"", body)
    words = re.findall(rb"[01]" if kind == 1 else rb"\d+", plain)[:count]
    if len(words) < count:
        raise ValueError("the PNM file is truncated")
    return np.array([min(int(word[:6]), 65535) for word in words], np.int64)


def _binary(body: bytes, kind: int, width: int, height: int, most: int) -> np.ndarray:
    if kind == 4:
        stride = (width + 7) // 8
        _require(body, stride * height)
        bits = np.unpackbits(np.frombuffer(body, np.uint8, stride * height).reshape(height, stride), axis=1)
        return bits[:, :width].astype(np.int64)
    count = width * height * (3 if kind == 6 else 1)
    element = np.dtype(">u2" if most > 255 else np.uint8)
    _require(body, count * element.itemsize)
    return np.frombuffer(body, element, count).astype(np.int64)


def _require(body: bytes, count: int) -> None:
    if len(body) < count:
        raise ValueError("the PNM file is truncated")
