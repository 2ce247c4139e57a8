"""Files in the format safetensors; every value is checked as it is read."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from mirlo.extend.runtime import map_file, numpy_dtype, open_regular, replacing
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.json_file import JsonObject, is_unsigned, read_json
from mirlo_llm.generate.path_errors import START, is_pointer, pointer_error

MAX_HEADER = 64 << 20
MAX_RANK = 5
MAX_DIM = 1 << 20
INDEX = "model.safetensors.index.json"
CHECKPOINTS = (INDEX, "model.safetensors")
"""Names of files with weights or with an index of them."""
_TYPES = {
    "F64": "f64",
    "F32": "f32",
    "F16": "f16",
    "BF16": "bf16",
    "I64": "i64",
    "I32": "i32",
    "U32": "u32",
    "I8": "i8",
    "U8": "u8",
    "F8_E4M3": "f8e4m3fn",
}


def read_checkpoint(path: Path) -> dict[str, np.ndarray]:
    """Return the tensors of a file or of an index's files, as views of the mapped files."""
    if path.name != INDEX:
        return dict(parse_safetensors(path, map_bytes(path)))
    index = read_json(path)
    files = index.object("weight_map")
    tensors: dict[str, np.ndarray] = {}
    for part in checkpoint_files(path)[1:]:
        for tensor, array in parse_safetensors(part, map_bytes(part)):
            if tensor in tensors:
                raise ModelFolderError(f"{part}: tensor {tensor!a:.80} is in another file too")
            tensors[tensor] = array
    missing = [tensor for tensor in files if tensor not in tensors]
    if missing:
        raise index.refuse("weight_map", f"tensor {missing[0]!a:.80} is not in '{files.text(missing[0])}'")
    return tensors


def checkpoint_files(path: Path) -> list[Path]:
    """Return a file of weights, or an index and the files that it lists."""
    if path.name != INDEX:
        return [path]
    index = read_json(path)
    files, result = index.object("weight_map"), [path]
    for name in dict.fromkeys(files.text(tensor) for tensor in files):
        if not re.fullmatch(r"[\w+@-][\w.+@-]*\.safetensors", name):
            raise index.fail("weight_map", "names of .safetensors files in the folder", name)
        result.append(path.with_name(name))
    return result


def parse_safetensors(path: Path, content: bytes | np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the tensors of a file as views of its content."""
    if is_pointer(bytes(content[:START])):
        raise pointer_error(path)
    size = int.from_bytes(bytes(content[:8]), "little")
    if len(content) < 8 or not 2 <= size <= min(len(content) - 8, MAX_HEADER):
        raise ModelFolderError(f"{path}: the file is damaged: its header does not fit")
    try:
        header = JsonObject(path, "", json.loads(bytes(content[8 : 8 + size])))
    except (ValueError, RecursionError) as error:
        if isinstance(error, ModelFolderError):
            raise
        raise ModelFolderError(f"{path}: the file is damaged: its header is no JSON: {error}") from None
    first, left = 8 + size, len(content) - 8 - size
    for name in header:
        if name == "__metadata__":
            continue
        entry = header.object(name)
        kind = entry.text("dtype")
        if kind not in _TYPES:
            raise entry.refuse("dtype", f"expected one of {', '.join(_TYPES)}, found {kind!a:.40}")
        (start, end), shape = _integers(entry, "data_offsets", 2), _integers(entry, "shape")
        left -= end - start
        if not 0 <= start <= end <= len(content) - first or left < 0:
            raise entry.refuse("data_offsets", f"bytes {start} to {end} are not those of a tensor of the file")
        yield name, tensor_of_bytes(path, name, _TYPES[kind], shape, content[first + start : first + end])


def tensor_of_bytes(
    path: Path, name: str, kind: str, shape: tuple[int, ...], content: bytes | np.ndarray
) -> np.ndarray:
    """Return a tensor's array: a view of its bytes if they are aligned, otherwise a copy."""
    dtype = numpy_dtype(kind)
    if len(shape) > MAX_RANK or any(not 0 <= dim <= MAX_DIM for dim in shape):
        what = f"expected up to {MAX_RANK} dims from 0 to {MAX_DIM}, found {list(shape)}"
        raise ModelFolderError(f"{path}: tensor '{name}': {what}")
    if math.prod(shape) == 0 and math.prod(max(dim, 1) for dim in shape) >= 1 << 60:  # numpy counts in 64 bits
        raise ModelFolderError(f"{path}: tensor '{name}': expected fewer elements, found {list(shape)}")
    if math.prod(shape) * dtype.itemsize != len(content):
        what = f"{kind}{list(shape)} takes {math.prod(shape) * dtype.itemsize} bytes, found {len(content)}"
        raise ModelFolderError(f"{path}: tensor '{name}': {what}")
    array: np.ndarray = np.frombuffer(content, dtype.newbyteorder("<")).reshape(shape)
    return array.astype(dtype, copy=not array.flags.aligned)


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write a file with these tensors."""
    codes = {numpy_dtype(kind): code for code, kind in _TYPES.items()}
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, array in tensors.items():
        entry = {"dtype": codes[array.dtype], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        header[name], at = entry, at + array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with replacing(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def map_bytes(path: Path) -> np.ndarray:
    """Return the bytes of a regular file, mapped into memory."""
    try:
        with open_regular(path) as file:
            return np.frombuffer(map_file(file, os.fstat(file.fileno()).st_size), np.uint8)
    except (OSError, ValueError) as error:
        raise ModelFolderError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _integers(entry: JsonObject, key: str, count: int | None = None) -> tuple[int, ...]:
    value = entry.value(key)
    numbers = [each for each in value if is_unsigned(each, 62)] if isinstance(value, list) else []
    wanted = len(numbers) if count is None else count
    if not isinstance(value, list) or not len(value) == len(numbers) == wanted:
        raise entry.fail(key, "a list of integers" if count is None else f"{count} integers", value)
    return tuple(numbers)
