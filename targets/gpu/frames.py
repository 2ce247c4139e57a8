"""A call of a model for given input sizes: where its tensors are placed, and its steps with concrete numbers.

Shared by the loaders of GPU targets. Imports nothing of the compiler.
"""

from __future__ import annotations

import ctypes
import math
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mirlo.runtime.artifact import Artifact, TensorSpec
from mirlo.runtime.dtypes import numpy_dtype
from mirlo.runtime.sizes import FIRST, Allocator, Sizes
from mirlo.targets.gpu.host import HostInterpreter, Straight, is_straight, straight_steps
from mirlo.targets.gpu.places import Region, lay_out

CACHED_FRAMES = 16
"""Frames of a model kept for calls with the same sizes."""


@dataclass(frozen=True)
class CallFrame:
    """A call with given sizes."""

    key: tuple[int, ...]
    """The sizes bound from the inputs."""
    regions: list[Region]
    """Where inputs and outputs are placed, consecutively; outputs of data-dependent size have no region."""
    total: int
    arena: int
    """Bytes of scratch memory."""
    steps: list[dict[str, Any]] | None
    """Launches and copies; None if the host decides between them."""


class Frames:
    """The frames of a model."""

    def __init__(self, artifact: Artifact, on_device: Collection[str] = ()) -> None:
        self.artifact = artifact
        self.on_device = frozenset(on_device)
        """Packed functions that take tensors in place on the device."""
        self.program = artifact.metadata["program"]
        self.sizes = Sizes(artifact)
        self.late = frozenset(artifact.metadata.get("late", ()))
        self._kept: OrderedDict[tuple[int, ...], CallFrame] = OrderedDict()

    def record(self, address: int) -> Any:
        """Return the call record at an address."""
        return (ctypes.c_int64 * self.sizes.words).from_address(address)

    def measure(self, address: int) -> None:
        """Check the sizes of the inputs in a record, and write the others."""
        HostInterpreter(Straight(), self.record(address)).run(self.program.get("sizes", ()))

    def of(self, record: Any) -> CallFrame:
        """Return the frame of a call."""
        key = tuple(record[FIRST : FIRST + len(self.sizes.symbols)])
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = self._make(key, record)
            while len(self._kept) > CACHED_FRAMES:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return found

    def _make(self, key: tuple[int, ...], record: Any) -> CallFrame:
        regions, total = lay_out([self._bytes(s, record) for s in (*self.artifact.inputs, *self.artifact.outputs)])
        # A program without host instructions has no such field.
        steps = self.program["steps"] if "straight" not in self.program else None
        if steps is None and is_straight(self.program["steps"], self.on_device):
            steps = straight_steps(self.program["steps"], record)
        arena = self.sizes.arena_bytes(record) if self.sizes.is_dynamic else self.program["arena"]
        return CallFrame(key, regions, total, arena, steps)

    def _bytes(self, spec: TensorSpec, record: Any) -> int:
        if self.is_late(spec):
            return 0
        return math.prod(self.sizes.shape(spec.shape, record)) * numpy_dtype(spec.dtype).itemsize

    def is_late(self, spec: TensorSpec) -> bool:
        """Return whether an output's size is data-dependent."""
        return not self.late.isdisjoint(map(str, spec.shape))

    def allocate_output(self, record: Any, number: int, size: int) -> int:
        """Return memory of the caller for an output of data-dependent size; 0 if there is none."""
        return Allocator(record[self.sizes.words - 1])(ctypes.addressof(record), number, size) or 0


def launches_in(steps: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield all launches of a program."""
    for step in steps:
        if "kernel" in step:
            yield step
        for value in step.values() if "do" in step else ():
            if isinstance(value, list) and value and isinstance(value[0], dict):
                yield from launches_in(value)
