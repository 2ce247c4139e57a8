"""Where tensors lie on a device: what the loaders of GPU targets share. It imports nothing of the compiler."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mirlo.runtime.artifact import Artifact, TensorSpec
from mirlo.runtime.dtypes import numpy_dtype

ALIGNMENT = 256
"""Of tensors in device memory, in bytes: enough for every device."""


@dataclass(frozen=True)
class Region:
    """Where a tensor lies in a buffer."""

    offset: int
    size: int


def size_of(spec: TensorSpec) -> int:
    """Bytes of a tensor whose dims are numbers."""
    return math.prod(spec.static_shape) * numpy_dtype(spec.dtype).itemsize


def lay_out(sizes: Sequence[int]) -> tuple[list[Region], int]:
    """Regions one behind the other, and how much they take together."""
    regions, at = [], 0
    for size in sizes:
        regions.append(Region(at, size))
        at += -(-max(size, 4) // ALIGNMENT) * ALIGNMENT
    return regions, max(at, ALIGNMENT)


def constants_of(artifact: Artifact) -> list[bytes]:
    """The small constants of a model."""
    return [artifact.code[at : at + size] for at, size in artifact.metadata["constants"]]


def pointers(given: Any, count: int) -> Any:
    """The addresses that an entry function is given: an array of them, or where one is."""
    return (ctypes.c_void_p * count).from_address(given) if isinstance(given, int) else given


def params_of(artifact: Artifact, addresses: Any) -> list[Any]:
    """The weights of a model, at the addresses that its entry function is given."""
    sizes = [size_of(spec) for spec in artifact.params]
    addresses = pointers(addresses, len(sizes))
    return [(ctypes.c_char * max(size, 1)).from_address(addresses[i]) for i, size in enumerate(sizes)]


def address_of(data: Any) -> int:
    """Where bytes, or an array of ctypes, are in memory."""
    if isinstance(data, bytes):
        return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0
    return ctypes.addressof(data)


class Hazards:
    """Which steps must wait for those before: those that touch what is written, or write what is touched."""

    def __init__(self) -> None:
        self._pending: list[tuple[Any, int, int, bool]] = []

    def must_wait(self, touched: Sequence[tuple[Any, int, int, bool]]) -> bool:
        """Whether a step has to wait; `touched` are ranges: a buffer, offset, size, and whether it is written.

        Where it has, everything before is taken to be done.
        """
        waits = any(_collide(one, other) for one in touched for other in self._pending)
        if waits:
            self._pending.clear()
        self._pending += touched
        return waits


def _collide(one: tuple[Any, int, int, bool], other: tuple[Any, int, int, bool]) -> bool:
    if one[0] is not other[0] or not (one[3] or other[3]):
        return False
    return one[1] < other[1] + other[2] and other[1] < one[1] + one[2]


class WhenCalled:
    """The entry function of a model that is placed on its device by the first call: it can be saved without one."""

    def __init__(self, place: Callable[[], Any]):
        self._place = place
        self._lock = threading.Lock()
        self._model: Any = None

    @property
    def model(self) -> Any:
        """The model on its device."""
        with self._lock:
            if self._model is None:
                self._model = self._place()
        return self._model

    @property
    def is_placed(self) -> bool:
        """Whether there was a call."""
        return self._model is not None

    def __call__(self, tensors: Any, params: Any, arena: Any, stamps: Any) -> None:
        """The entry function, as that of code for the CPU."""
        self.model.call(tensors, params, arena, stamps)
