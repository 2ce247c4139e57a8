"""Tensors of the Open Inference Protocol, as JSON or as bytes after the JSON part of a body."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mirlo.extend.runtime import MAX_RANK, STRING, numpy_dtype
from mirlo_llm.serve.body import BodyFields
from mirlo_llm.serve.errors import RequestError, ServeError, refused

DATATYPES = {
    "bool": "BOOL", "u8": "UINT8", "u16": "UINT16", "u32": "UINT32", "u64": "UINT64", "i8": "INT8", "i16": "INT16",
    "i32": "INT32", "i64": "INT64", "f16": "FP16", "bf16": "BF16", "f32": "FP32", "f64": "FP64", STRING: "BYTES",
}  # fmt: skip
"""The protocol's names of element types."""
PIECE = 1 << 16
"""Elements of JSON that are converted at once."""
MAX_DIM = (1 << 63) - 1


@dataclass(frozen=True)
class TensorPort:
    """An input or output of a model."""

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None
    """None if the rank is unknown."""

    @property
    def datatype(self) -> str:
        """Return the protocol's name of the element type."""
        return DATATYPES[self.dtype]

    @property
    def metadata(self) -> dict[str, object]:
        """Return the protocol's description of the port."""
        dims = [dim if isinstance(dim, int) else -1 for dim in self.shape or ()]
        return {"name": self.name, "datatype": self.datatype, "shape": dims}


def require_servable(model: str, what: str, name: str, dtype: str) -> None:
    """Raise an error for an element type that the protocol does not have."""
    if dtype not in DATATYPES:
        raise ServeError(
            f"model '{model}': {what} '{name}' is {dtype}, which the Open Inference Protocol does not have"
        )


def read_shape(fields: BodyFields) -> tuple[int, ...]:
    """Return the shape of a tensor."""
    shape = fields.list("shape", MAX_RANK)
    if not all(type(dim) is int and 0 <= dim <= MAX_DIM for dim in shape):
        raise fields.fail("shape", "an array of sizes, integers from 0")
    return tuple(int(str(dim)) for dim in shape)


def array_of_json(port: TensorPort, shape: tuple[int, ...], data: object, place: str) -> np.ndarray:
    """Convert JSON elements, flat or nested, to an array."""
    if not isinstance(data, list):
        raise refused(place, "expected an array")
    flat = _flattened(data)
    count = math.prod(shape)
    if len(flat) != count:
        raise refused(place, f"expected {count} elements for shape {list(shape)}, found {len(flat)}")
    if port.dtype == STRING:
        if not all(type(each) is str for each in flat):
            raise refused(place, "expected texts")
        result = np.empty(count, object)
        result[:] = flat
        return result.reshape(shape)
    kinds = {type(each) for each in flat}
    wanted = {bool} if port.dtype == "bool" else {int} if port.dtype[0] in "iu" else {int, float}
    if not kinds <= wanted:
        listed = ", ".join(sorted("null" if kind is type(None) else kind.__name__ for kind in kinds - wanted))
        raise refused(place, f"expected elements of type {port.datatype}, found {listed}")
    dtype = numpy_dtype(port.dtype)
    try:
        with np.errstate(over="ignore"):
            pieces = [  # each holds Python's lock
                np.array(flat[at : at + PIECE], np.float64 if wanted == {int, float} else dtype).astype(dtype)
                for at in range(0, max(count, 1), PIECE)
            ]
            array = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    except (OverflowError, ValueError):
        raise refused(place, f"an element does not fit {port.datatype}") from None
    if wanted == {int, float} and not np.isfinite(array.astype(np.float64)).all():
        raise refused(place, f"an element does not fit {port.datatype}")
    return array.reshape(shape)


def _flattened(data: list[Any]) -> list[Any]:
    while any(type(each) is list for each in data):
        data = [item for each in data for item in (each if type(each) is list else [each])]
    return data


def array_of_bytes(port: TensorPort, shape: tuple[int, ...], data: memoryview, place: str) -> np.ndarray:
    """Return an array that refers to the elements in bytes."""
    if port.dtype == STRING:
        return _texts_of_bytes(shape, data, place)
    dtype = numpy_dtype(port.dtype)
    expected = math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        what = f"expected {expected} bytes for {port.datatype} of shape {list(shape)}, found {len(data)}"
        raise refused(place, what)
    if port.dtype == "bool":
        flags: np.ndarray = np.frombuffer(data, np.uint8) != 0
        return flags.reshape(shape)
    values: np.ndarray = np.frombuffer(data, dtype.newbyteorder("<") if dtype.kind in "iuf" else dtype)
    return values.reshape(shape)


def _texts_of_bytes(shape: tuple[int, ...], data: memoryview, place: str) -> np.ndarray:
    """Return texts, each stored after its length in 4 bytes."""
    count = math.prod(shape)
    if 4 * count > len(data):
        raise refused(place, f"expected {count} texts, found {len(data)} bytes")
    texts: list[str] = []
    at = 0
    for _ in range(count):
        if at + 4 > len(data):
            raise refused(place, f"expected {count} texts, found {len(texts)}")
        (length,) = struct.unpack_from("<I", data, at)
        at += 4
        if length > len(data) - at:
            raise refused(place, f"text {len(texts)} has {length} bytes, of which {len(data) - at} are there")
        try:
            texts.append(str(data[at : at + length], "utf-8"))
        except UnicodeDecodeError:
            raise refused(place, f"text {len(texts)} is not UTF-8") from None
        at += length
    if at != len(data):
        raise refused(place, f"{len(data) - at} bytes follow the last text")
    result = np.empty(count, object)
    result[:] = texts
    return result.reshape(shape)


def json_of_array(port: TensorPort, array: np.ndarray) -> list[object]:
    """Return the elements as a flat list."""
    if port.dtype == STRING:
        return [str(each) for each in array.ravel().tolist()]
    values = array if array.dtype.kind in "iub" else array.astype(np.float64)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        what = 'has values that are not finite, which JSON cannot hold: request it with "binary_data": true'
        raise RequestError(400, f"output '{port.name}' {what}", parameter="outputs")
    flat, result = values.ravel(), list[object]()
    for at in range(0, flat.size, PIECE):
        result += flat[at : at + PIECE].tolist()
    return result


def bytes_of_array(port: TensorPort, array: np.ndarray) -> bytes:
    """Return the elements as bytes."""
    if port.dtype == STRING:
        texts = [str(each).encode("utf-8", "replace") for each in array.ravel().tolist()]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    if array.dtype.kind in "iuf" and array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return np.ascontiguousarray(array).tobytes()


def rows_of(shape: Sequence[int]) -> int:
    """Return the size of the first dim."""
    return shape[0] if shape else 0
