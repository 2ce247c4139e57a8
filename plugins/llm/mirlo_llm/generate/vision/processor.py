"""Preprocessing of images by a folder's configuration: resizing, cropping and normalization."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mirlo_llm.generate.checkpoints.image_options import PIXELS
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.json_file import JsonObject, is_number, read_json

FILE, NESTED = "preprocessor_config.json", "processor_config.json"
"""Files with the preprocessing options; the second one has them under the key `image_processor`."""
MAX_SIDE = 1 << 13
BICUBIC, RESAMPLINGS = 3, 5
"""Names of resampling filters, indexed by Pillow's numbers."""


@dataclass(frozen=True)
class EncoderInputs:
    """The inputs of an encoder for an image."""

    arrays: dict[str, np.ndarray]
    """The arrays by input name."""
    columns: int = 1
    """Tokens per row of the image, if tokens have rows and columns."""


@dataclass(frozen=True)
class PixelValues:
    """Options for the values of pixels."""

    path: Path
    resample: int
    scale: float
    """Scale factor of pixels from 0 to 255."""
    mean: tuple[float, float, float]
    deviation: tuple[float, float, float]

    def resized(self, pixels: np.ndarray, height: int, width: int) -> np.ndarray:
        """Return the image resized to these sides."""
        if (height, width) == pixels.shape[:2]:
            return pixels
        from PIL import Image

        return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling(self.resample)))

    def normalized(self, pixels: np.ndarray) -> np.ndarray:
        """Convert u8[height, width, 3] to normalized f32[3, height, width]."""
        values = (pixels * np.float64(self.scale)).astype(np.float32)
        mean, deviation = (np.array(each, np.float32) for each in (self.mean, self.deviation))
        return np.ascontiguousarray(((values - mean) / deviation).transpose(2, 0, 1))


@dataclass(frozen=True)
class ImageProcessor:
    """Preprocessing options for images of one size."""

    values: PixelValues
    shortest: int
    """The shorter side after resizing; 0 if `size` is exact."""
    size: tuple[int, int]
    """Height and width of the result."""

    def process(self, pixels: np.ndarray) -> np.ndarray:
        """Convert u8[height, width, 3] to the model's f32[3, height, width]."""
        height, width = self._resized(*pixels.shape[:2])
        pixels = self.values.resized(pixels, height, width)
        top, left = (height - self.size[0]) // 2, (width - self.size[1]) // 2
        return self.values.normalized(pixels[top : top + self.size[0], left : left + self.size[1]])

    def inputs(self, pixels: np.ndarray) -> EncoderInputs:
        """Return the inputs of an encoder for an image, u8[height, width, 3]."""
        return EncoderInputs({PIXELS: self.process(pixels)[None]})

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        if not self.shortest:
            return self.size
        shorter, longer = sorted((height, width))
        other = int(self.shortest * longer / shorter)
        return (self.shortest, other) if height <= width else (other, self.shortest)


def read_processor(keys: JsonObject, size: int) -> ImageProcessor:
    """Read the preprocessing options of a folder; `size` is the side of the model's images."""
    values = read_pixel_values(keys)
    if keys.flag("do_pan_and_scan", False):
        raise keys.refuse("do_pan_and_scan", "parts of images beside the whole are not supported")
    wanted, shortest = keys.object("size"), 0
    if wanted.has("shortest_edge"):
        if not keys.flag("do_center_crop", True):
            raise keys.refuse("do_center_crop", "only true is supported with the size of a shortest edge")
        shortest, wanted = wanted.count("shortest_edge", least=1, most=MAX_SIDE), keys.object("crop_size")
    result = tuple(wanted.count(side, least=1, most=MAX_SIDE) for side in ("height", "width"))
    if result != (size, size) or (shortest and shortest < size):
        raise keys.refuse("size", f"expected {size} x {size} pixels, which the model takes, found {result}")
    return ImageProcessor(values, shortest, (size, size))


def read_pixel_values(keys: JsonObject) -> PixelValues:
    """Read the options for the values of pixels."""
    for key in ("do_resize", "do_rescale", "do_normalize"):
        if not keys.flag(key, True):
            raise keys.refuse(key, "only true is supported")
    resample = keys.count("resample", BICUBIC, most=RESAMPLINGS)
    mean, deviation = _triple(keys, "image_mean"), _triple(keys, "image_std")
    if min(deviation) <= 0:
        raise keys.fail("image_std", "three numbers above 0", deviation)
    return PixelValues(keys.path, resample, keys.number("rescale_factor", 1 / 255), mean, deviation)


def processor_keys(folder: Path) -> JsonObject:
    """Read the preprocessing configuration of a folder."""
    if (folder / FILE).is_file():
        return read_json(folder / FILE)
    if (folder / NESTED).is_file() and read_json(folder / NESTED).has("image_processor"):
        return read_json(folder / NESTED).object("image_processor")
    raise ModelFolderError(f"{folder}: there is no {FILE}, which says how images are prepared")


def _triple(keys: JsonObject, name: str) -> tuple[float, float, float]:
    value = keys.value(name)
    numbers = [float(each) for each in value if is_number(each)] if isinstance(value, list) else []
    if not isinstance(value, list) or not len(value) == len(numbers) == 3:
        raise keys.fail(name, "three numbers", value)
    return numbers[0], numbers[1], numbers[2]
