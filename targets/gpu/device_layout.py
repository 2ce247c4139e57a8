"""Placement of tensors on a device, shared by the loaders of GPU targets. Imports nothing of the compiler."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypedDict, TypeVar

from mirlo.runtime.artifact import Artifact, TensorSpec
from mirlo.runtime.dtypes import numpy_dtype
from mirlo.runtime.locks import make_lock
from mirlo.runtime.records import dataclass

ALIGNMENT = 256
"""Alignment of tensors in device memory, in bytes; enough for every device."""


@dataclass(frozen=True)
class Region:
    """Where a tensor is placed in a buffer."""

    offset: int
    size: int


def size_of(spec: TensorSpec) -> int:
    """Return the bytes of a tensor with static dims."""
    return math.prod(spec.static_shape) * numpy_dtype(spec.dtype).itemsize


def lay_out(sizes: Sequence[int]) -> tuple[list[Region], int]:
    """Place regions one after another; return them and their total size."""
    regions, at = [], 0
    for size in sizes:
        regions.append(Region(at, size))
        at += -(-max(size, 4) // ALIGNMENT) * ALIGNMENT
    return regions, max(at, ALIGNMENT)


class KernelEntry(TypedDict, total=False):
    """Where the code of a kernel is in an artifact: offset and size."""

    entry: str
    code: list[int]
    binary: list[int]
    shared: int
    """Bytes of shared memory that launches must request, or that a block of threads must have."""
    reports: bool
    """Whether launches append the numbers of a report to the scalars."""


def constants_of(artifact: Artifact) -> list[bytes]:
    """Return the small constants of a model."""
    return [artifact.code[at : at + size] for at, size in artifact.metadata["constants"]]


Pointers = ctypes.Array[ctypes.c_void_p] | int
"""Addresses that an entry function receives: an array, or its address."""


def pointers(addresses: Pointers, count: int) -> ctypes.Array[ctypes.c_void_p]:
    """Return the addresses that an entry function receives, given an array or its address."""
    return (ctypes.c_void_p * count).from_address(addresses) if isinstance(addresses, int) else addresses


def params_of(artifact: Artifact, addresses: Pointers) -> list[ctypes.Array[ctypes.c_char]]:
    """Return the weights of a model, at the addresses that its entry function receives."""
    sizes = [size_of(spec) for spec in artifact.params]
    addresses = pointers(addresses, len(sizes))
    return [(ctypes.c_char * max(size, 1)).from_address(addresses[i] or 0) for i, size in enumerate(sizes)]


def address_of(data: bytes | ctypes.Array[ctypes.c_char]) -> int:
    """Return the address of bytes or of a ctypes array."""
    if isinstance(data, bytes):
        return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0
    return ctypes.addressof(data)


Access = tuple[object, int, int, bool]
"""A range that a step touches: buffer, offset, size, whether it is written."""


class Hazards:
    """Tracks data dependences: which steps must wait for earlier ones."""

    def __init__(self) -> None:
        self._pending: list[Access] = []

    def must_wait(self, touched: Sequence[Access]) -> bool:
        """Return whether a step has to wait; `touched` are ranges: buffer, offset, size, whether it is written.

        If so, everything before is considered finished.
        """
        waits = any(_collide(one, other) for one in touched for other in self._pending)
        if waits:
            self._pending.clear()
        self._pending += touched
        return waits


def _collide(one: Access, other: Access) -> bool:
    if one[0] is not other[0] or not (one[3] or other[3]):
        return False
    return one[1] < other[1] + other[2] and other[1] < one[1] + one[2]


class PlacedModel(Protocol):
    """A model on its device."""

    def call(self, tensors: Pointers | None, params: Pointers | None, arena: int, stamps: int | None) -> None:
        """Run the entry function."""


M = TypeVar("M", bound=PlacedModel)


class WhenCalled(Generic[M]):
    """The entry function of a model that its first call places on the device, so that it can be saved without one.

    A fork has no device of its parent, whose threads it lacks: its first call places the model again.
    """

    def __init__(self, place: Callable[[], M]):
        self._place = place
        self._lock = make_lock()
        self._models: dict[int, M] = {}
        """By process: a fork keeps the model of its parent, which it cannot release."""

    @property
    def model(self) -> M:
        """Return the model on its device."""
        process = os.getpid()
        with self._lock:
            if process not in self._models:
                self._models[process] = self._place()
        return self._models[process]

    @property
    def is_placed(self) -> bool:
        """Return whether there was a call."""
        return os.getpid() in self._models

    def __call__(self, tensors: Pointers | None, params: Pointers | None, arena: int, stamps: int | None) -> None:
        """Run the entry function, with the signature of compiled CPU code."""
        self.model.call(tensors, params, arena, stamps)
