"""Compiled host functions of a model, and the commands that they give.

Loaders use it; it imports nothing of the compiler. A host function is `void(int64_t* record, HostDevice* device)`. It
appends commands to the device's words, and calls `execute` where it needs an answer, or where the words are full.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from mirlo.runtime.artifact import Artifact
from mirlo.runtime.errors import ArtifactError
from mirlo.runtime.loaders import compile_bitcode
from mirlo.targets.gpu.commands import longest

RUN, SIZES = "mirlo_host", "mirlo_host_sizes"
"""The functions: of an inference, and of the sizes of a call."""
CAPACITY = 1 << 14
"""Words of commands that are executed together, at least the longest command's."""
Receiver = Callable[[list[int]], int]
"""Execute the words of some commands; return the answer of the last one, if it has one."""


class HostDevice(ctypes.Structure):
    """The fields of a device that a host function reads; `targets/gpu/host_code.py` knows the layout."""


_EXECUTE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
HostDevice._fields_ = [
    ("words", ctypes.c_void_p), ("capacity", ctypes.c_int64), ("used", ctypes.c_int64), ("execute", _EXECUTE),
    ("answer", ctypes.c_int64), ("error", ctypes.c_int64),
]  # fmt: skip
_Function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class CallEnded(Exception):
    """Ends a call: a function failed, as the call record says."""


class HostFunctions:
    """The host functions of a model. One thread at a time may call `run`."""

    def __init__(self, artifact: Artifact) -> None:
        at, size = artifact.metadata["program"]["code"]
        self._linked, self._object = compile_bitcode(artifact.code[at : at + size])
        self._run, self._sizes = self._function(RUN), self._function(SIZES)
        capacity = max(CAPACITY, longest(artifact.metadata["program"]["sites"]))
        self._words = (ctypes.c_int64 * capacity)()
        self._problem: BaseException | None = None
        self._receive: Receiver = _refuse
        self._callback = _EXECUTE(self._execute)
        self._device = HostDevice(ctypes.addressof(self._words), capacity, 0, self._callback, 0, 0)

    def _function(self, name: str) -> Callable[[int, int], None] | None:
        address = self._linked.address(name)
        return _Function(address) if address else None

    def measure(self, record: ctypes.Array[ctypes.c_int64]) -> None:
        """Check the sizes of the inputs in a record, and write the others."""
        if self._sizes is not None:
            device = HostDevice()
            self._sizes(ctypes.addressof(record), ctypes.addressof(device))
            _check_error(device)

    def run(self, record: ctypes.Array[ctypes.c_int64], receive: Receiver) -> bool:
        """Execute the host function; `receive` takes its commands. Return whether nothing ended the call early."""
        device = self._device
        self._receive, self._problem, device.used, device.error = receive, None, 0, 0
        try:
            assert self._run is not None
            self._run(ctypes.addressof(record), ctypes.addressof(device))
            if self._problem is None and not device.error and not record[0] and device.used:
                self._execute(0)
            if self._problem is not None and not isinstance(self._problem, CallEnded):
                raise self._problem
        finally:
            ended, self._receive, self._problem = self._problem is not None, _refuse, None
        _check_error(device)
        return not ended and not record[0]

    def _execute(self, device: int) -> int:
        words = self._words[: self._device.used]
        self._device.used = 0
        try:
            self._device.answer = self._receive(words)
        except BaseException as problem:  # exceptions must not cross C frames
            self._problem = problem
            return 1
        return 0


def _refuse(words: list[int]) -> int:
    raise ArtifactError("a host function gave commands outside of a call")


def _check_error(device: HostDevice) -> None:
    if device.error:
        raise ArtifactError(
            "a size of the model is divided by zero, or its quotient overflows: give inputs that are not empty"
        )
