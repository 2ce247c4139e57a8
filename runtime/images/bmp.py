"""Decoder of BMP: uncompressed, 1, 4, 8, 24 or 32 bits per pixel."""

from __future__ import annotations

import struct

import numpy as np

SIGNATURE = b"BM"
MAX_PIXELS = 1 << 28


def decode(data: bytes) -> np.ndarray:
    """Return the pixels of a BMP file; raise ValueError if it is damaged."""
    if len(data) < 54 or not data.startswith(SIGNATURE):
        raise ValueError("this is no BMP file, or a truncated one")
    start, header = struct.unpack_from("<II", data, 10)
    if header < 40:
        raise ValueError(f"BMP files with a header of {header} bytes are not supported")
    width, height, _, bits, compression = struct.unpack_from("<iiHHI", data, 18)
    colors = struct.unpack_from("<I", data, 46)[0]
    upside_down, height = height < 0, abs(height)
    if width < 1 or not 0 < width * height <= MAX_PIXELS:
        raise ValueError(f"the BMP file has {width} x {height} pixels")
    if bits not in (1, 4, 8, 24, 32) or compression not in (0, 3) or (compression == 3 and bits != 32):
        raise ValueError(f"BMP files of {bits} bits a pixel and compression {compression} are not supported")
    stride = (width * bits + 31) // 32 * 4
    if start + stride * height > len(data):
        raise ValueError("the BMP file is truncated")
    rows = np.frombuffer(data, np.uint8, stride * height, start).reshape(height, stride)
    rows = rows if upside_down else rows[::-1]
    if bits >= 24:
        pixels = rows[:, : width * bits // 8].reshape(height, width, bits // 8)
        return np.ascontiguousarray(pixels[..., 2::-1])
    places = (rows[:, :, None] >> np.arange(8 - bits, -1, -bits, dtype=np.uint8)) & ((1 << bits) - 1)
    places = places.reshape(height, -1)[:, :width]
    count = min(colors or 1 << bits, (start - 14 - header) // 4)
    palette = np.frombuffer(data, np.uint8, max(count, 0) * 4, 14 + header).reshape(-1, 4)[:, 2::-1]
    if int(places.max(initial=0)) >= len(palette):
        raise ValueError("the BMP file is damaged: it uses colors that its palette does not have")
    chosen: np.ndarray = palette[places]
    return chosen
