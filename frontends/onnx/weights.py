"""Arrays of the tensors in an ONNX model: views of the mapped file wherever the format allows it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.types import LARGEST_TENSOR, TensorType
from mirlo.frontends.builder import INLINE_ELEMENTS
from mirlo.frontends.onnx.dtypes import OnnxDType, onnx_dtype
from mirlo.frontends.onnx.errors import OnnxImportError, plural
from mirlo.frontends.onnx.graph import STRING_CODE, TensorDef
from mirlo.frontends.onnx.values import AnyValue, strings
from mirlo.frontends.tensor import Tensor, TensorBuilder
from mirlo.runtime import system
from mirlo.runtime.files import require_regular

_PACKED = (21, 22, 23, 25, 26)
"""TensorProto.DataType: UINT4, INT4, FLOAT4E2M1, UINT2, INT2."""
_MAX_RANK = 64 if int(np.__version__.split(".")[0]) >= 2 else 32
"""Dims of an array of numpy."""


class Weights:
    """Reads the tensors of one model. Arrays are read-only views that keep their mapping alive."""

    def __init__(self, model: str, folder: Path | None) -> None:
        self.model = model
        self.folder = folder
        self._files: dict[Path, memoryview] = {}

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the files that were read for tensors, besides the model's own."""
        return tuple(self._files)

    def values(self, tensors: Iterable[TensorDef], builder: TensorBuilder) -> list[AnyValue]:
        """Return initializers as values, which are known or packed."""
        return [self._value(tensor, builder) for tensor in tensors]

    def _value(self, tensor: TensorDef, builder: TensorBuilder) -> AnyValue:
        if tensor.code == STRING_CODE:
            return strings(tensor.name, self.strings(tensor))
        packed = self.packed(tensor)
        if packed is None:
            return builder.constant(self.array(tensor), name=tensor.name)
        return Tensor(builder, TensorType(tensor.dims, packed[1]), packed=packed[0], name=tensor.name)

    def array(self, tensor: TensorDef, name: str | None = None) -> np.ndarray:
        """Return the values of a tensor, in its shape and element type."""
        what = f"{self.model}: tensor '{name or tensor.name or 'without a name'}'"
        element, shape = onnx_dtype(tensor.code, what), _shape(tensor, what)
        raw = self._raw(tensor, what)
        if raw is None:
            return _from_values(tensor.numbers, element, shape, what)
        return _from_bytes(raw, element, shape, what)

    def packed(self, tensor: TensorDef) -> tuple[np.ndarray, DType] | None:
        """Return elements of 2 or 4 bits as bytes, packed along the last dim, and their type.

        None for tensors of other types, small ones, and those in which a byte holds elements of two rows.
        """
        if tensor.code not in _PACKED or len(tensor.dims) == 0 or math.prod(tensor.dims) <= INLINE_ELEMENTS:
            return None
        what = f"{self.model}: tensor '{tensor.name or 'without a name'}'"
        element, shape = onnx_dtype(tensor.code, what), _shape(tensor, what)
        count = 8 // element.dtype.bits
        if shape[-1] % count:
            return None
        raw = self._raw(tensor, what)
        if raw is None:
            assert tensor.numbers is not None
            raw = memoryview(tensor.numbers.astype(np.uint8).tobytes())
        if len(raw) != math.prod(shape) // count:
            return None  # `array` says what is wrong
        return np.frombuffer(raw, np.uint8).reshape(*shape[:-1], shape[-1] // count), element.dtype

    def _raw(self, tensor: TensorDef, what: str) -> bytes | memoryview | None:
        """Return the bytes of a tensor; None if its elements are in a typed field."""
        if tensor.is_segmented:
            raise OnnxImportError(f"{what} is stored in segments, which ONNX files no longer use; save the model again")
        return tensor.raw if tensor.external is None else self._external(tensor.external, what)

    def strings(self, tensor: TensorDef) -> np.ndarray:
        """Return the elements of a tensor of strings."""
        what = f"{self.model}: tensor '{tensor.name or 'without a name'}'"
        shape = tensor.dims
        if any(dim < 0 for dim in shape) or math.prod(shape) != len(tensor.strings):
            raise OnnxImportError(f"{what} of dims {list(shape)} has {plural(len(tensor.strings), 'string')}")
        try:
            words = [word.decode() for word in tensor.strings]
        except UnicodeDecodeError as error:
            raise OnnxImportError(f"{what} holds strings that are no UTF-8: {error}") from None
        array = np.empty(len(words), object)
        array[:] = words
        return array.reshape(shape)

    def _external(self, entries: Mapping[str, str], what: str) -> memoryview:
        location = entries.get("location", "")
        if not location:
            raise OnnxImportError(f"{what} has external data, but no 'location'")
        buffer = self._file(location, what)
        offset = _count(entries.get("offset", "0"), "offset", what)
        size = _count(entries.get("length", str(max(len(buffer) - offset, 0))), "length", what)
        if offset + size > len(buffer):
            raise OnnxImportError(
                f"{what} is bytes {offset} to {offset + size} of '{location}', which has only {len(buffer)} bytes: "
                "the file is truncated or belongs to another model"
            )
        return buffer[offset : offset + size]

    def _file(self, location: str, what: str) -> memoryview:
        """Map an external file, which must be in the model's folder."""
        if self.folder is None:
            raise OnnxImportError(
                f"{what} has its data in the file '{location}'; give the model's path instead of its bytes, "
                "so that the file can be found next to it"
            )
        folder = Path(os.path.realpath(self.folder))
        try:
            path = Path(os.path.realpath(folder / location))
        except (OSError, ValueError) as error:
            raise OnnxImportError(f"{what} has its data in '{location}', which is not a file name: {error}") from None
        if Path(location).is_absolute() or not path.is_relative_to(folder):
            raise OnnxImportError(
                f"{what} has its data in '{location}', which is outside the model's folder {folder}; "
                "only files in the model's folder are read"
            )
        if path not in self._files:
            self._files[path] = map_file(path, f"{what} has its data in", "the file belongs to the model: put it there")
        return self._files[path]


def _shape(tensor: TensorDef, what: str) -> tuple[int, ...]:
    shape = tensor.dims
    if any(dim < 0 for dim in shape):
        raise OnnxImportError(f"{what} has a negative dim: {list(shape)}")
    if len(shape) > _MAX_RANK:
        raise OnnxImportError(f"{what} has {len(shape)} dims, arrays have at most {_MAX_RANK}; reshape it in the model")
    if 0 in shape and math.prod(dim or 1 for dim in shape) >= LARGEST_TENSOR:
        raise OnnxImportError(f"{what} of dims {list(shape)} is beyond any memory: arrays have strides, though empty")
    return shape


def map_file(path: Path, why: str, advice: str = "") -> memoryview:
    """Map a file into memory read-only; `why` starts the message of an error."""
    try:
        if not path.exists():
            raise OnnxImportError(f"{why} '{path}', which does not exist" + (f"; {advice}" if advice else ""))
        if path.is_dir():
            raise OnnxImportError(f"{why} '{path}', which is a folder and is not a file")
        try:
            require_regular(path)
        except OSError as error:
            raise OnnxImportError(f"{why} '{path}': {error.strerror}") from None
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            return memoryview(system.map_file(file, size))
    except OSError as error:
        raise OnnxImportError(f"{why} '{path}', which cannot be read: {error.strerror}") from None


def _count(text: str, key: str, what: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise OnnxImportError(f"{what}: its external data has {key} '{text[:40]}', expected a number of bytes")
    return int(text)


def _from_bytes(raw: bytes | memoryview, element: OnnxDType, shape: tuple[int, ...], what: str) -> np.ndarray:
    count = math.prod(shape)
    bits = element.dtype.bits if not element.dtype.is_bool else 8
    expected = (count * bits + 7) // 8
    if len(raw) != expected:
        raise OnnxImportError(
            f"{what} of {element.name} and dims {list(shape)} needs {expected} bytes of data, but has {len(raw)}"
        )
    if bits < 8:
        return _unpack(np.frombuffer(raw, np.uint8), element, count).reshape(shape)
    array = np.frombuffer(raw, element.dtype.to_numpy())
    return array.reshape(shape)


def _from_values(values: np.ndarray | None, element: OnnxDType, shape: tuple[int, ...], what: str) -> np.ndarray:
    """Return the array of values stored in typed fields."""
    count = math.prod(shape)
    dtype = element.dtype
    expected = (count * dtype.bits + 7) // 8 if dtype.bits < 8 and not dtype.is_bool else count
    if values is None or len(values) != expected:
        raise OnnxImportError(
            f"{what} of {element.name} and dims {list(shape)} needs {plural(expected, 'value')} "
            f"in {element.field}, but has {0 if values is None else len(values)}"
        )
    if element.field == "int32_data" and dtype.bits < 8 and not dtype.is_bool:
        return _unpack(values.astype(np.uint8), element, count).reshape(shape)
    if element.field == "int32_data" and dtype.is_float:  # it holds the bits of low-precision floats
        values = values.astype(np.uint16 if dtype.bits == 16 else np.uint8).view(dtype.to_numpy())
    return _frozen(values.astype(dtype.to_numpy(), copy=False).reshape(shape))


def _unpack(packed: np.ndarray, element: OnnxDType, count: int) -> np.ndarray:
    """Unpack elements of 4 or 2 bits, packed lowest bits first, to one per byte."""
    bits = element.dtype.bits
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    fields = (packed[:, None] >> shifts & (2**bits - 1)).reshape(-1)[:count].astype(np.uint8)
    if element.dtype.kind == "int":  # sign-extend to a byte
        fields = ((fields ^ 2 ** (bits - 1)) - 2 ** (bits - 1)).astype(np.int8)
        return _frozen(fields.astype(element.dtype.to_numpy()))
    if element.dtype.is_float:
        return _frozen(fields.view(element.dtype.to_numpy()))
    return _frozen(fields.astype(element.dtype.to_numpy()))


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array
