"""Run-time sizes: the call record, its fields, and the memory that a call allocates."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from mirlo.runtime.artifact import Artifact
from mirlo.runtime.container import READABLE, empty_aligned
from mirlo.runtime.errors import ArtifactError, InputError, OutOfMemoryError

FIRST = 2
"""Index of the record's word with the first dim of the inputs."""
Allocator = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
"""`void* allocate(int64_t* record, int64_t number, int64_t bytes)`; null if out of memory."""

RecordWords: TypeAlias = "ctypes.Array[ctypes.c_int64]"
"""The sizes of a call, which compiled code reads and writes."""


class Sizes:
    """The run-time sizes that an artifact declares."""

    def __init__(self, artifact: Artifact) -> None:
        self.symbols = _texts(artifact, "symbols") or list(artifact.symbols)
        self.sizes = _texts(artifact, "sizes")
        self.checks = _texts(artifact, "checks")
        self.shown = _texts(artifact, "shown")
        self._words = {name: FIRST + i for i, name in enumerate((*self.symbols, *self.sizes))}
        self.is_dynamic = bool(self.sizes)
        self.words = FIRST + len(self.symbols) + len(self.sizes) + 1

    def word(self, dim: str) -> int | None:
        """Return the index of the record's word with a dim; None if there is none."""
        return self._words.get(dim)

    @property
    def arena_word(self) -> int:
        """Return the index of the record's word with the size of a dynamic arena."""
        return FIRST + len(self.symbols)

    @property
    def known(self) -> set[str]:
        """Return the dims that outputs may have."""
        return set(self._words)

    def record(self, dims: Mapping[str, int]) -> RecordWords:
        """Return the record of a call for these dims of the inputs."""
        return (ctypes.c_int64 * self.words)(0, 0, *(dims[name] for name in self.symbols))

    def arena_bytes(self, record: RecordWords) -> int:
        return int(record[self.arena_word])

    def shape(self, shape: Sequence[int | str], record: RecordWords) -> tuple[int, ...]:
        """Evaluate a shape with the current values of the record."""
        return tuple(dim if isinstance(dim, int) else int(record[self._words[dim]]) for dim in shape)

    def require(self, record: RecordWords) -> None:
        """Raise an error if compiled code found that sizes do not fit."""
        code = int(record[0])
        if code >= 0:
            return
        number = -1 - code
        text = self.checks[number] if number < len(self.checks) else "a size"
        shown = self.shown[number].split() if number < len(self.shown) else []
        values = ", ".join(f"{name} = {int(record[self._words[name]])}" for name in shown if name in self._words)
        raise InputError(f"{text}, where {values}" if values else f"{text}: found {int(record[1])}")


class Allocations:
    """The memory that one call allocated.

    `given` are arrays of the caller for outputs, used if they have the requested size; `empty` makes others.
    """

    def __init__(
        self,
        buffers: Mapping[int, np.ndarray] | None = None,
        empty: Callable[[np.dtype, tuple[int, ...]], np.ndarray] = empty_aligned,
    ) -> None:
        self._empty = empty
        self.outputs: dict[int, np.ndarray] = {}
        self._given = buffers or {}
        self._kept: list[np.ndarray] = []
        self.failed = ""
        self._raised: BaseException | None = None
        self.function = Allocator(self._allocate)

    @property
    def address(self) -> int:
        return ctypes.cast(self.function, ctypes.c_void_p).value or 0

    def _allocate(self, record: int, number: int, size: int) -> int | None:
        array = self._given.get(number)
        if array is not None and array.nbytes == size > 0:
            self.outputs[number] = array.reshape(-1).view(np.uint8)
            return int(array.__array_interface__["data"][0])
        try:
            if size < 0:
                raise OutOfMemoryError(f"a size of {size} bytes was computed")
            memory = self._empty(np.dtype(np.uint8), (size or READABLE,))
        except OutOfMemoryError as error:
            self.failed = str(error)
            return None
        except BaseException as error:  # such as Ctrl-C: compiled code would go on with any address
            self._raised = error
            return None
        self._kept.append(memory)
        if number >= 0:
            self.outputs[number] = memory
        return int(memory.__array_interface__["data"][0])

    def output(self, number: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """Return the output that was written to memory of this call."""
        count = int(np.prod(shape, dtype=np.int64))
        return self.outputs[number][: count * dtype.itemsize].view(dtype).reshape(shape)

    def require(self) -> None:
        if self._raised is not None:
            raise self._raised
        if self.failed:
            raise OutOfMemoryError(f"there is no memory for a tensor of this call: {self.failed}; give smaller inputs")


def _texts(artifact: Artifact, key: str) -> list[str]:
    texts = artifact.metadata.get(key, [])
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise ArtifactError(f"metadata '{key}': expected a list of texts, found {texts!r}")
    return list(texts)
