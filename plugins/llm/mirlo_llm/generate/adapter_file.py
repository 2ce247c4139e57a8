"""Files of LoRA adapters: ONNX Runtime's `.onnx_adapter` and `.safetensors`; both are checked as they are read."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mirlo_llm.generate.checkpoints.safetensors import MAX_RANK, parse_safetensors, tensor_of_bytes
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.json_file import read_bytes, read_json

MAX_BYTES = 16 << 30
"""Largest file; adapters have up to some hundred MB."""
MAX_TENSORS, MAX_NAME = 1 << 20, 4096
IDENTIFIER = b"TORT"
FORMAT_VERSION = 1
_ONNX_TYPES = {1: "f32", 2: "u8", 3: "i8", 6: "i32", 7: "i64", 10: "f16", 11: "f64", 16: "bf16"}
PEFT_PREFIX = "base_model.model."
PEFT_CONFIG, PEFT_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@dataclass(frozen=True)
class AdapterFile:
    """The tensors of an adapter."""

    path: Path
    tensors: dict[str, np.ndarray]
    is_peft: bool = False
    """Whether names and layout are those of PEFT, which stores each matrix transposed relative to an ONNX model."""


def read_adapter(path: str | Path) -> AdapterFile:
    """Read the adapter of a file, or of a folder that PEFT wrote."""
    folder = Path(path)
    if folder.is_dir():
        folder = folder / PEFT_WEIGHTS
    content = read_bytes(folder, MAX_BYTES)
    if content[4:8] == IDENTIFIER:
        return AdapterFile(folder, dict(_flat_tensors(folder, content)))
    if folder.suffix == ".safetensors":
        tensors = dict(parse_safetensors(folder, content))
        if any(name.startswith(PEFT_PREFIX) for name in tensors):
            return AdapterFile(folder, _scaled(folder, tensors), is_peft=True)
        return AdapterFile(folder, tensors)
    raise ModelFolderError(f"{folder}: expected an adapter: a file .onnx_adapter or .safetensors, or a folder of PEFT")


# FlatBuffers: tables of little-endian offsets, https://flatbuffers.dev/internals


class _Flat:
    """A table of a FlatBuffer; every offset is checked against the buffer."""

    def __init__(self, path: Path, content: bytes, place: int) -> None:
        self.path, self._content, self._place = path, content, place
        self._fields = place - self.number("<i", place)
        self._size = self.number("<H", self._fields)

    def fail(self, what: str) -> ModelFolderError:
        return ModelFolderError(f"{self.path}: the file is damaged: {what}")

    def number(self, kind: str, place: int) -> int:
        """Return a number at a position of the buffer."""
        if not 0 <= place <= len(self._content) - struct.calcsize(kind):
            raise self.fail(f"it ends before byte {place}, which it refers to")
        result: int = struct.unpack_from(kind, self._content, place)[0]
        return result

    def _field(self, index: int) -> int | None:
        """Return the position of a field; None if it is absent."""
        entry = 4 + 2 * index
        offset = self.number("<H", self._fields + entry) if entry + 2 <= self._size else 0
        return self._place + offset if offset else None

    def integer(self, index: int) -> int:
        """Return an i32 field; 0 if it is absent."""
        place = self._field(index)
        return 0 if place is None else self.number("<i", place)

    def vector(self, index: int, size: int) -> tuple[int, int]:
        """Return the position of a vector with elements of this size in bytes, and its length."""
        place = self._field(index)
        if place is None:
            return 0, 0
        start = place + self.number("<I", place)
        count = self.number("<I", start)
        if count * size > len(self._content) - start - 4:
            raise self.fail(f"a vector of {count} elements does not fit")
        return start + 4, count

    def bytes(self, index: int) -> bytes:
        """Return a vector of bytes."""
        start, count = self.vector(index, 1)
        return self._content[start : start + count]

    def integers(self, index: int, most: int) -> tuple[int, ...]:
        """Return a vector of i64."""
        start, count = self.vector(index, 8)
        if count > most:
            raise self.fail(f"expected up to {most} dims, found {count}")
        return struct.unpack_from(f"<{count}q", self._content, start)

    def tables(self, index: int) -> Iterator[_Flat]:
        """Yield a vector of tables."""
        start, count = self.vector(index, 4)
        if count > MAX_TENSORS:
            raise self.fail(f"expected up to {MAX_TENSORS} tensors, found {count}")
        for place in range(start, start + 4 * count, 4):
            yield _Flat(self.path, self._content, place + self.number("<I", place))


def _flat_tensors(path: Path, content: bytes) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the tensors of a file in ONNX Runtime's format."""
    root = _Flat(path, content, struct.unpack_from("<I", content)[0])
    version = root.integer(0)
    if version != FORMAT_VERSION:
        raise ModelFolderError(
            f"{path}: version {version} of the format of adapters; version {FORMAT_VERSION} is known"
        )
    seen = set()
    left = len(content)
    for table in root.tables(3):
        text = table.bytes(0)
        try:
            name = text[: MAX_NAME + 1].decode("utf-8")
        except UnicodeDecodeError:
            raise root.fail("the name of a tensor is no UTF-8") from None
        if not name or len(text) > MAX_NAME or name in seen:
            raise root.fail(f"the name of a tensor is empty, too long or there twice: {name!a:.60}")
        seen.add(name)
        kind = table.integer(2)
        if kind not in _ONNX_TYPES:
            raise ModelFolderError(f"{path}: tensor '{name}': element type {kind} of ONNX is not supported")
        data = table.bytes(3)
        left -= len(data)  # tensors that share bytes could take any amount of memory
        if left < 0:
            raise root.fail("tensors overlap")
        yield name, tensor_of_bytes(path, name, _ONNX_TYPES[kind], table.integers(1, MAX_RANK), data)


def _scaled(path: Path, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return PEFT's tensors with the adapter's scale multiplied into B, as ONNX models expect."""
    config = path.with_name(PEFT_CONFIG)
    if not config.exists():
        raise ModelFolderError(f"{path}: {PEFT_CONFIG} is missing beside it, which has the scale of the adapter")
    settings = read_json(config)
    if settings.text("peft_type", "LORA") != "LORA":
        raise settings.fail("peft_type", "LORA", settings.text("peft_type"))
    if settings.flag("use_dora", False):
        raise settings.refuse("use_dora", "DoRA adapters are not supported")
    if settings.has("alpha_pattern") and settings.value("alpha_pattern"):
        raise settings.refuse("alpha_pattern", "scales by module are not supported")
    alpha, by_root = settings.number("lora_alpha", 8.0), settings.flag("use_rslora", False)
    result = dict(tensors)
    for name, array in tensors.items():
        if ".lora_B." in name and array.ndim == 2 and array.shape[1]:
            rank = array.shape[1]
            scale = alpha / (math.sqrt(rank) if by_root else rank)
            result[name] = (array.astype(np.float32) * np.float32(scale)).astype(array.dtype)
    return result
