"""Preprocessing of images with dynamic sizes: patches in squares, and windows of squares."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mirlo_llm.generate.checkpoints.image_grid import PLACES, SQUARES, WINDOWS, GridOptions
from mirlo_llm.generate.checkpoints.image_options import PIXELS
from mirlo_llm.generate.json_file import JsonObject
from mirlo_llm.generate.vision.processor import EncoderInputs, PixelValues, read_pixel_values

LEAST_PIXELS, MOST_PIXELS = 56 * 56, 28 * 28 * 1280
"""Default bounds of a resized image in pixels."""
MAX_PIXELS = 1 << 26


@dataclass(frozen=True)
class PatchProcessor:
    """Preprocessing options for images that approximately keep their size."""

    values: PixelValues
    patch: int
    grid: GridOptions
    has_windows: bool
    least: int
    """Pixels of the smallest result; `most` is the largest."""
    most: int

    def inputs(self, pixels: np.ndarray) -> EncoderInputs:
        """Return the inputs of an encoder for an image, u8[height, width, 3]."""
        side = self.patch * self.grid.merge
        height, width = resized_sides(pixels.shape[0], pixels.shape[1], side, self.least, self.most)
        values = self.values.normalized(self.values.resized(pixels, height, width))
        rows, columns, merge = height // side, width // side, self.grid.merge
        parts = values.reshape(3, rows, merge, self.patch, columns, merge, self.patch)
        squares = parts.transpose(1, 4, 2, 5, 0, 3, 6).reshape(rows * columns, merge**2, -1)
        at = np.indices((rows, merge, columns, merge))
        places = np.stack([at[0] * merge + at[1], at[2] * merge + at[3]], -1).transpose(0, 2, 1, 3, 4)
        arrays = {PIXELS: np.ascontiguousarray(squares), PLACES: places.reshape(rows * columns, merge**2, 2)}
        if self.has_windows:
            arrays[WINDOWS] = window_squares(rows, columns, self.grid.window)
            arrays[SQUARES] = np.argsort(arrays[WINDOWS].reshape(-1), kind="stable")[-rows * columns :]
        return EncoderInputs(arrays, columns)


def resized_sides(height: int, width: int, side: int, least: int, most: int) -> tuple[int, int]:
    """Return multiples of `side` near the sides of an image, with a product from `least` to `most`."""
    rows, columns = round(height / side), round(width / side)
    pixels = rows * columns * side**2
    if pixels > most:
        ratio = math.sqrt(height * width / most)
        rows, columns = (max(1, math.floor(each / ratio / side)) for each in (height, width))
    elif pixels < least:
        ratio = math.sqrt(least / (height * width))
        rows, columns = (math.ceil(each * ratio / side) for each in (height, width))
    return rows * side, columns * side


def window_squares(rows: int, columns: int, window: int) -> np.ndarray:
    """Return the squares of each window of `window` x `window` squares, -1 for those outside of the image."""
    tall, wide = -(-rows // window), -(-columns // window)
    squares = np.full((tall * window, wide * window), -1, np.int64)
    squares[:rows, :columns] = np.arange(rows * columns).reshape(rows, columns)
    parts: np.ndarray = squares.reshape(tall, window, wide, window).transpose(0, 2, 1, 3)
    return parts.reshape(tall * wide, window**2)


def read_patch_processor(keys: JsonObject, patch: int, grid: GridOptions, has_windows: bool) -> PatchProcessor:
    """Read the preprocessing options of a folder for a grid of patches."""
    expected = {"patch_size": patch, "merge_size": grid.merge, "temporal_patch_size": grid.frames}
    for key, value in expected.items():
        if keys.count(key, value) != value:
            raise keys.refuse(key, f"expected {value}, as the model has, found {keys.value(key)}")
    size = keys.object("size")
    least = keys.count("min_pixels", size.count("shortest_edge", LEAST_PIXELS, least=1), least=1, most=MAX_PIXELS)
    most = keys.count("max_pixels", size.count("longest_edge", MOST_PIXELS, least=1), least=least, most=MAX_PIXELS)
    if not least <= most <= MAX_PIXELS:
        raise keys.refuse("size", f"expected up to {MAX_PIXELS} pixels, and more than {least}, found {most}")
    return PatchProcessor(read_pixel_values(keys), patch, grid, has_windows, least, most)
