"""Data that calibrate a model: arrays, files of arrays, images, or the results of a generator."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Union

import numpy as np

from mirlo.runtime.dtypes import numpy_dtype
from mirlo.runtime.files import open_regular
from mirlo.runtime.names import terminal
from mirlo.runtime.records import dataclass
from mirlo.tools.quantize.errors import QuantizationError
from mirlo.tools.quantize.options import ImageScaling

if TYPE_CHECKING:
    from mirlo.runtime.artifact import TensorSpec

Feeds: TypeAlias = dict[str, np.ndarray]
Given = Union[
    str, "os.PathLike[str]", np.ndarray, Mapping[str, np.ndarray], Iterable[object], Callable[[], Iterable[object]]
]
"""What callers may give: a path, arrays with all samples along their first axis, or calls' inputs one by one."""

BATCH = 16
"""Samples of a call where the model leaves their number open: enough to fill the tiles of a product."""
IMAGES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"})
_HINT = "expected an .npz file, a folder of images or .npy files, or FILE.py:function"


@dataclass(frozen=True)
class CalibrationData:
    """The inputs of calls, which may be iterated over several times."""

    what: str
    """What messages call the data."""
    calls: Callable[[], Iterable[tuple[str, object]]]
    """Returns the inputs of each call, or arrays of samples, with what messages call them."""
    specs: tuple[TensorSpec, ...]
    limit: int | None = None
    """Most samples that are used."""
    is_stacked: bool = False
    """Whether the first axis of each array is that of all samples."""

    def __iter__(self) -> Iterator[Feeds]:
        left = self.limit
        for what, arguments in self.calls():
            whole = self._named(arguments, what)
            for feeds in self._batches(whole, what) if self.is_stacked else [whole]:
                if left is not None and left <= 0:
                    return
                if left is not None:
                    left -= self.samples(feeds)
                yield {spec.name: _checked(feeds[spec.name], spec, what) for spec in self.specs}

    def samples(self, feeds: Feeds) -> int:
        """Return the number of samples of a call."""
        first = self.specs[0] if self.specs else None
        shape = feeds[first.name].shape if first is not None else ()
        return shape[0] if first is not None and len(first.shape) and len(shape) == len(first.shape) else 1

    def _named(self, arguments: object, what: str) -> Feeds:
        names = [spec.name for spec in self.specs]
        if isinstance(arguments, Mapping):
            missing = [name for name in names if name not in arguments]
            if missing:
                listed = ", ".join(f"'{terminal(str(name))}'" for name in arguments) or "nothing"
                raise QuantizationError(f"{what}: no array for input '{missing[0]}'; found {listed}")
            return {name: np.asarray(arguments[name]) for name in names}
        arrays = list(arguments) if isinstance(arguments, (tuple, list)) else [arguments]
        if len(arrays) != len(names):
            raise QuantizationError(
                f"{what}: {len(arrays)} array{'s' * (len(arrays) != 1)} for {len(names)} inputs: "
                f"expected {', '.join(names)}"
            )
        return {name: np.asarray(array) for name, array in zip(names, arrays, strict=True)}

    def _batches(self, whole: Feeds, what: str) -> Iterator[Feeds]:
        """Yield the samples of arrays, as many at a time as a call takes."""
        counts = {name: array.shape[0] if array.ndim else 0 for name, array in whole.items()}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"'{name}' {count}" for name, count in counts.items())
            raise QuantizationError(f"{what}: the inputs have different numbers of samples: {listed}")
        count = next(iter(counts.values()), 0)
        sizes = {spec.shape[0] for spec in self.specs if spec.shape and isinstance(spec.shape[0], int)}
        step = int(min(sizes)) if sizes else BATCH
        if count < (step if sizes else 1):
            raise QuantizationError(f"{what}: {count} samples, expected at least {step}, which a call takes")
        for start in range(0, count - step + 1 if sizes else count, step):
            yield {name: array[start : start + step] for name, array in whole.items()}


def open_data(
    source: Given, specs: Sequence[TensorSpec], limit: int | None = None, images: ImageScaling | None = None
) -> CalibrationData:
    """Return the data that a caller names or gives, for inputs of these types."""
    wanted = tuple(specs)
    if isinstance(source, (str, os.PathLike)):
        return _of_path(os.fspath(source), wanted, limit, images or ImageScaling())
    if isinstance(source, (np.ndarray, Mapping)):
        return CalibrationData("the data", lambda: [("the data", source)], wanted, limit, is_stacked=True)
    if callable(source):
        return CalibrationData("the data", lambda: _numbered("the data", source()), wanted, limit)
    listed = list(source)
    return CalibrationData("the data", lambda: _numbered("the data", listed), wanted, limit)


def _numbered(what: str, items: object) -> Iterator[tuple[str, object]]:
    if not isinstance(items, Iterable) or isinstance(items, (str, bytes, Mapping, np.ndarray)):
        raise QuantizationError(
            f"{what}: expected the inputs of calls, one after another, each an array, a tuple of arrays or a dict by "
            f"input name; found a {type(items).__name__}"
        )
    for number, item in enumerate(items):
        yield f"{what}, call {number}", item


def _of_path(text: str, specs: tuple[TensorSpec, ...], limit: int | None, images: ImageScaling) -> CalibrationData:
    path, shown = Path(text), f"'{terminal(text)}'"
    file, colon, function = text.rpartition(":")
    if colon and file.endswith(".py") and not path.exists():
        call = _function(Path(file), function)
        return CalibrationData(shown, lambda: _numbered(shown, call()), specs, limit)
    if path.is_dir():
        files = sorted(each for each in path.iterdir() if each.suffix.lower() in IMAGES | {".npy"})
        if not files:
            raise QuantizationError(f"{shown}: the folder has no images and no .npy files; {_HINT}")
        if len(specs) != 1:
            names = ", ".join(spec.name for spec in specs) or "none"
            raise QuantizationError(f"{shown}: a folder is data of one input, the model has {len(specs)} ({names})")
        return CalibrationData(shown, lambda: _files(files, specs[0], images), specs, limit)
    if not path.exists():
        raise QuantizationError(f"{shown} does not exist; {_HINT}")
    if path.suffix != ".npz":
        raise QuantizationError(f"{shown} is no calibration data; {_HINT}")
    arrays = _read_npz(path, shown, [spec.name for spec in specs])
    return CalibrationData(shown, lambda: [(shown, arrays)], specs, limit, is_stacked=True)


def _function(path: Path, name: str) -> Callable[[], object]:
    shown = f"'{terminal(str(path))}'"
    if not path.is_file():
        raise QuantizationError(f"{shown} does not exist")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's program raises
        raise QuantizationError(f"{shown} cannot be imported: {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise QuantizationError(f"{shown} has no function '{terminal(name)}'")

    def call() -> object:
        try:
            return function()
        except Exception as error:
            raise QuantizationError(f"{shown}: {name}() fails: {type(error).__name__}: {error}") from error

    return call


def _read_npz(path: Path, shown: str, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the arrays of the inputs; in a file for a model of one input, the array may have any name."""
    try:
        with np.load(path, allow_pickle=False) as content:
            listed = list(content.files)
            wanted = listed if len(names) == len(listed) == 1 else [name for name in names if name in listed]
            arrays = {name: content[name] for name in wanted}
    except Exception as error:  # zip files and headers of numpy raise many kinds
        raise QuantizationError(
            f"{shown} is not a file that numpy.savez wrote, or it is damaged: {terminal(str(error)):.200}"
        ) from None
    if len(names) == len(listed) == 1:
        return {names[0]: arrays[listed[0]]}
    missing = [name for name in names if name not in arrays]
    if missing:
        listing = ", ".join(f"'{terminal(name)}'" for name in listed) or "nothing"
        raise QuantizationError(f"{shown}: no array for input '{missing[0]}'; found {listing}")
    return arrays


def _files(files: Sequence[Path], spec: TensorSpec, images: ImageScaling) -> Iterator[tuple[str, object]]:
    for file in files:
        shown = f"'{terminal(str(file))}'"
        array = _read_npy(file, shown) if file.suffix.lower() == ".npy" else _read_image(file, shown, spec, images)
        yield shown, array[np.newaxis] if array.ndim == len(spec.shape) - 1 else array


def _read_npy(path: Path, shown: str) -> np.ndarray:
    try:
        with open_regular(path) as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # numpy parses the header as Python, which raises many kinds
        raise QuantizationError(
            f"{shown} is not an array that numpy.save wrote, or it is damaged: {terminal(str(error))}"
        ) from None


def _read_image(path: Path, shown: str, spec: TensorSpec, scaling: ImageScaling) -> np.ndarray:
    """Return an image in the size and the layout of an input of rank 4 or 3."""
    try:
        from PIL import Image
    except ImportError:
        raise QuantizationError("images are read with Pillow: pip install 'mirlo[images]'") from None
    if len(spec.shape) != 4:
        raise QuantizationError(f"{shown}: images need an input of 4 dims, '{spec.name}' has {len(spec.shape)}")
    last = spec.shape[3] in (1, 3) and spec.shape[1] not in (1, 3)
    channels, height, width = [spec.shape[i] for i in ((3, 1, 2) if last else (1, 2, 3))]
    if channels not in (1, 3) or not isinstance(height, int) or not isinstance(width, int):
        raise QuantizationError(
            f"{shown}: images need 1 or 3 channels and a fixed height and width, input {spec} has others; "
            "write the data to .npy files"
        )
    try:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB" if channels == 3 else "L").resize((width, height)), np.float32)
    except Exception as error:  # decoders raise many kinds
        raise QuantizationError(f"{shown} is not an image, or it is damaged: {terminal(str(error))}") from None
    values = (pixels.reshape(height, width, channels) / 255 - np.array(scaling.mean, np.float32)) / np.array(
        scaling.std, np.float32
    )
    if values.shape[2] != channels:
        raise QuantizationError(f"{shown}: mean and std have 3 numbers, input '{spec.name}' 1 channel")
    return np.asarray(values if last else values.transpose(2, 0, 1), np.float32)[np.newaxis]


def _checked(array: np.ndarray, spec: TensorSpec, what: str) -> np.ndarray:
    """Return an array of the input's element type; its values must be finite."""
    if array.dtype.kind not in "fiub":
        raise QuantizationError(f"{what}: input '{spec.name}': expected numbers, found {array.dtype}")
    fits = len(array.shape) == len(spec.shape) and all(
        size == dim for size, dim in zip(array.shape, spec.shape, strict=True) if isinstance(dim, int)
    )
    if not fits:
        raise QuantizationError(f"{what}: expected {spec}, found an array of shape {list(array.shape)}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise QuantizationError(f"{what}: input '{spec.name}' has values that are not finite")
    return np.ascontiguousarray(array, numpy_dtype(spec.dtype))
