"""Execution of the steps of a call in which the host decides. Imports nothing of the compiler."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod

import numpy as np

from mirlo.runtime.artifact import Artifact
from mirlo.targets.gpu.commands import Step, StepRange
from mirlo.targets.gpu.device_layout import Pointers
from mirlo.targets.gpu.frames import CallRecord
from mirlo.targets.gpu.functions import PackedFunctionTable


class StepWorker(ABC):
    """Executes the steps of one call on a device."""

    def __init__(self, artifact: Artifact, record: CallRecord, params: Pointers) -> None:
        self._record = record
        self._functions = PackedFunctionTable(artifact, params)
        self._room: dict[int, int] = {}
        """The bytes of memory that grows, by number."""

    def execute(self, step: Step) -> int:
        """Execute a step; return the number that it reads."""
        if "read" in step:
            data = ctypes.create_string_buffer(step["read"][3])
            self.fetch(step["read"], ctypes.addressof(data), len(data))
            return int.from_bytes(data.raw, "little", signed=True)
        if "write" in step:
            data = ctypes.create_string_buffer(step["value"], len(step["value"]))
            self.put(step["write"], ctypes.addressof(data), len(data))
        elif "allocate" in step:
            self.allocate(step["allocate"], step["number"], step["bytes"])
        elif "grow" in step:
            self._grow(step["grow"], max(step["bytes"], 1))
        elif "call" in step:
            self.call(step)
        else:
            self.enqueue(step)
        return 0

    def _grow(self, memory: int, size: int) -> None:
        """Allocate memory again if it has fewer bytes, then at least twice as many."""
        room = self._room.get(memory, 0)
        if size > room:
            self._room[memory] = max(size, 2 * room)
            self.allocate(memory, -1, self._room[memory])

    @abstractmethod
    def enqueue(self, step: Step) -> None:
        """Enqueue a launch or a copy."""

    @abstractmethod
    def fetch(self, where: StepRange, target: int, size: int) -> None:
        """Copy bytes of a range to an address of the host, after all previous steps."""

    @abstractmethod
    def put(self, where: StepRange, source: int, size: int) -> None:
        """Copy bytes at an address of the host to a range, after all previous steps."""

    @abstractmethod
    def allocate(self, memory: int, number: int, size: int) -> None:
        """Allocate memory of the space `late`; `number` is that of the output it is for, or -1."""

    def call(self, step: Step) -> None:
        """Call a packed function on copies of its tensors; raise `CallEnded` if it fails."""
        self._functions.call(step, self._record, self._fetch_array, self._put_array)

    def _fetch_array(self, where: StepRange, array: np.ndarray) -> None:
        if array.nbytes:
            self.fetch(where, array.__array_interface__["data"][0], array.nbytes)

    def _put_array(self, where: StepRange, array: np.ndarray) -> None:
        if array.nbytes:
            self.put(where, array.__array_interface__["data"][0], array.nbytes)
