"""A call of a model for given input sizes: where its tensors are placed, and its steps with concrete numbers.

Shared by the loaders of GPU targets. Imports nothing of the compiler.
"""

from __future__ import annotations

import ctypes
import math
from collections import OrderedDict
from collections.abc import Callable, Collection

from mirlo.runtime.artifact import Artifact, TensorSpec
from mirlo.runtime.dtypes import numpy_dtype
from mirlo.runtime.errors import ArtifactError
from mirlo.runtime.records import dataclass
from mirlo.runtime.sizes import FIRST, Allocator, Sizes
from mirlo.targets.gpu.commands import CommandReader, Step, is_straight
from mirlo.targets.gpu.device_layout import Region, lay_out
from mirlo.targets.gpu.host import CallEnded, HostFunctions

CACHED_FRAMES = 16
"""Frames of a model kept for calls with the same sizes."""


CallRecord = ctypes.Array[ctypes.c_int64]


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
    steps: list[Step] | None
    """Launches and copies; None if the host decides between them."""


class Frames:
    """The frames of a model."""

    def __init__(self, artifact: Artifact, on_device: Collection[str] = ()) -> None:
        self.artifact = artifact
        self.on_device = frozenset(on_device)
        """Packed functions that take tensors in place on the device."""
        program = artifact.metadata["program"]
        if "sites" not in program:
            raise ArtifactError("the model was compiled by another version of Mirlo: compile it again")
        self.sites = program["sites"]
        self._arena = program["arena"]
        self.reader = CommandReader(self.sites)
        self.host = HostFunctions(artifact) if "code" in program else None
        self.is_straight = is_straight(self.sites, self.on_device)
        self._static: list[Step] | None = None
        """The steps of all calls, where they depend on nothing."""
        if "commands" in program:
            self._static = self.reader.static_steps(program["commands"])
        self.sizes = Sizes(artifact)
        self.late = frozenset(artifact.metadata.get("late", ()))
        self._kept: OrderedDict[tuple[int, ...], CallFrame] = OrderedDict()

    def record(self, address: int) -> CallRecord:
        """Return the call record at an address."""
        return (ctypes.c_int64 * self.sizes.words).from_address(address)

    def measure(self, address: int) -> None:
        """Check the sizes of the inputs in a record, and write the others."""
        if self.host is not None:
            self.host.measure(self.record(address))

    def of(self, record: CallRecord) -> CallFrame:
        """Return the frame of a call."""
        key = tuple(record[FIRST : FIRST + len(self.sizes.symbols)])
        result = self._kept.get(key)
        if result is None:
            result = self._kept[key] = self._make(key, record)
            while len(self._kept) > CACHED_FRAMES:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return result

    def _make(self, key: tuple[int, ...], record: CallRecord) -> CallFrame:
        regions, total = lay_out([self._bytes(s, record) for s in (*self.artifact.inputs, *self.artifact.outputs)])
        steps = self._static if self.is_straight else None
        if steps is None and self.is_straight:
            steps = []
            self.run(record, steps.append)
        arena = self.sizes.arena_bytes(record) if self.sizes.is_dynamic else self._arena
        return CallFrame(key, regions, total, arena, steps)

    def run(self, record: CallRecord, execute: Callable[[Step], int | None]) -> bool:
        """Execute the steps of a call; return whether none ended it early.

        `execute` returns the number that a step reads.
        """
        if self._static is not None:
            try:
                for step in self._static:
                    execute(step)
            except CallEnded:
                return False
            return True

        def receive(words: list[int]) -> int:
            answer = None
            for step in self.reader.steps(words):
                answer = execute(step)
            return answer or 0

        assert self.host is not None
        return self.host.run(record, receive)

    def _bytes(self, spec: TensorSpec, record: CallRecord) -> int:
        if self.is_late(spec):
            return 0
        return math.prod(self.sizes.shape(spec.shape, record)) * numpy_dtype(spec.dtype).itemsize

    def is_late(self, spec: TensorSpec) -> bool:
        """Return whether an output's size is data-dependent."""
        return not self.late.isdisjoint(map(str, spec.shape))

    def allocate_output(self, record: CallRecord, number: int, size: int) -> int:
        """Return memory of the caller for an output of data-dependent size; 0 if there is none."""
        return Allocator(record[self.sizes.words - 1])(ctypes.addressof(record), number, size) or 0
