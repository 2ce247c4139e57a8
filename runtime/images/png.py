"""Decoder of PNG: all color types and depths, interlaced or not. Transparency is ignored."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GRAY, TRUE, PALETTE, GRAY_ALPHA, TRUE_ALPHA = 0, 2, 3, 4, 6
_CHANNELS = {GRAY: 1, TRUE: 3, PALETTE: 1, GRAY_ALPHA: 2, TRUE_ALPHA: 4}
_DEPTHS = {GRAY: (1, 2, 4, 8, 16), TRUE: (8, 16), PALETTE: (1, 2, 4, 8), GRAY_ALPHA: (8, 16), TRUE_ALPHA: (8, 16)}
# Adam7: first column and row, and the strides, of each pass.
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
MAX_PIXELS = 1 << 28


def decode(data: bytes) -> np.ndarray:
    """Return the pixels of a PNG file; raise ValueError if it is damaged."""
    width = height = depth = color = interlaced = 0
    palette = np.zeros((0, 3), np.uint8)
    packed = b""
    for kind, body in _chunks(data):
        if kind == b"IHDR":
            width, height, depth, color, compression, filtering, interlaced = struct.unpack(">IIBBBBB", body)
            if color not in _CHANNELS or depth not in _DEPTHS[color] or compression or filtering or interlaced > 1:
                raise ValueError("the header of the PNG file has an unknown color type, depth or method")
            if not 0 < width * height <= MAX_PIXELS:
                raise ValueError(f"the PNG file has {width} x {height} pixels")
        elif kind == b"PLTE":
            palette = np.frombuffer(body[: len(body) // 3 * 3], np.uint8).reshape(-1, 3)
        elif kind == b"IDAT":
            packed += body
        elif kind == b"IEND":
            break
    if not width:
        raise ValueError("the PNG file has no header")
    passes = _PASSES if interlaced else ((0, 0, 1, 1),)
    sizes = [(-(-(height - y) // dy), -(-(width - x) // dx)) for x, y, dx, dy in passes]
    bits = depth * _CHANNELS[color]
    lengths = [rows * (1 + (columns * bits + 7) // 8) if columns > 0 and rows > 0 else 0 for rows, columns in sizes]
    raw = _inflated(packed, sum(lengths))
    samples = np.zeros((height, width, _CHANNELS[color]), np.uint16 if depth == 16 else np.uint8)
    start = 0
    for (x, y, dx, dy), (rows, columns), length in zip(passes, sizes, lengths, strict=True):
        if length:
            lines = np.frombuffer(raw, np.uint8, length, start).reshape(rows, -1)
            samples[y::dy, x::dx] = _samples(_unfiltered(lines, max(bits // 8, 1)), columns, depth, _CHANNELS[color])
        start += length
    return _colors(samples, depth, color, palette)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    if not data.startswith(SIGNATURE):
        raise ValueError("this is no PNG file")
    at = len(SIGNATURE)
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        if at + 12 + length > len(data):
            break
        body = data[at + 8 : at + 8 + length]
        if zlib.crc32(kind + body) != struct.unpack_from(">I", data, at + 8 + length)[0]:
            raise ValueError(f"the PNG file is damaged: the checksum of a part {kind!r} is wrong")
        yield kind, body
        at += 12 + length
    if at < len(data):
        raise ValueError("the PNG file is truncated")


def _inflated(packed: bytes, length: int) -> bytes:
    try:
        raw = zlib.decompressobj().decompress(packed, length)
    except zlib.error as problem:
        raise ValueError(f"the PNG file is damaged: {problem}") from None
    if len(raw) < length:
        raise ValueError("the PNG file is truncated")
    return raw


def _unfiltered(lines: np.ndarray, step: int) -> np.ndarray:
    """Return the bytes of the rows, which are stored as differences to their neighbours."""
    made = np.zeros((len(lines), lines.shape[1] - 1), np.uint8)
    above = np.zeros(made.shape[1], np.uint8)
    for row, line in zip(made, lines, strict=True):
        kind, stored = line[0], line[1:]
        if kind == 0:
            row[:] = stored
        elif kind == 1:
            for first in range(step):
                row[first::step] = np.cumsum(stored[first::step], dtype=np.uint8)
        elif kind == 2:
            row[:] = stored + above
        elif kind in (3, 4):
            _recursive(row, stored, above, step, int(kind))
        else:
            raise ValueError(f"the PNG file is damaged: there is no filter {kind}")
        above = row
    return made


def _recursive(row: np.ndarray, stored: np.ndarray, above: np.ndarray, step: int, kind: int) -> None:
    """Apply the average and Paeth filters, in which every byte depends on the one before."""
    out = [0] * len(stored)
    for i, (byte, up) in enumerate(zip(stored.tolist(), above.tolist(), strict=True)):
        left, corner = (out[i - step], int(above[i - step])) if i >= step else (0, 0)
        if kind == 3:
            guess = (left + up) // 2
        else:
            near = left + up - corner
            guess = min((abs(near - left), 0, left), (abs(near - up), 1, up), (abs(near - corner), 2, corner))[2]
        out[i] = (byte + guess) & 255
    row[:] = out


def _samples(lines: np.ndarray, columns: int, depth: int, channels: int) -> np.ndarray:
    if depth == 16:
        return lines.view(">u2").reshape(len(lines), columns, channels)
    if depth == 8:
        return lines.reshape(len(lines), columns, channels)
    shifts = np.arange(8 - depth, -1, -depth, dtype=np.uint8)
    parts = (lines[:, :, None] >> shifts) & ((1 << depth) - 1)
    return parts.reshape(len(lines), -1)[:, :columns, None]


def _colors(samples: np.ndarray, depth: int, color: int, palette: np.ndarray) -> np.ndarray:
    if color == PALETTE:
        if int(samples.max(initial=0)) >= len(palette):
            raise ValueError("the PNG file is damaged: it uses colors that its palette does not have")
        chosen: np.ndarray = palette[samples[..., 0]]
        return chosen
    values = (samples >> 8).astype(np.uint8) if depth == 16 else samples
    if depth < 8:
        values = (values.astype(np.uint16) * 255 // ((1 << depth) - 1)).astype(np.uint8)
    if color in (GRAY, GRAY_ALPHA):
        return np.repeat(values[..., :1], 3, axis=2)
    return np.ascontiguousarray(values[..., :3])
