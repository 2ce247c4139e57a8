"""The heartbeat of a process: a count that grows while it runs, in memory that other processes read.

A process that computes a long step, waits for a lock or holds Python's own still counts; one that is stopped (SIGSTOP,
a debugger, a frozen container) does not.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time

from mirlo.runtime import processes
from mirlo.runtime.locks import make_lock

PERIOD = 0.25
"""Seconds between two counts: a few of them pass in the shortest silence that a monitor may be asked for."""
BYTES = 8
"""Size of the memory: one count, i64."""

_lock = make_lock()
_descriptor: int | None = None
"""The memory of this process's count, once it beats."""


def create_heartbeat_memory() -> int:
    """Return the descriptor of memory for the count of a process."""
    return processes.create_shared_memory(BYTES)


def own_heartbeat() -> int:
    """Return the descriptor of this process's count, which stays open, and begin to count unless it does already."""
    with _lock:
        return _descriptor if _descriptor is not None else _begin(create_heartbeat_memory())


def begin_heartbeat(descriptor: int) -> None:
    """Count in memory that another process has created; nothing happens if this process counts already."""
    with _lock:
        if _descriptor is None:
            _begin(descriptor)


class HeartbeatMonitor:
    """Watches the count of another process."""

    def __init__(self, descriptor: int, seconds: float) -> None:
        """Close the descriptor; a process that does not count for `seconds` is silent. Raise OSError for no count."""
        self.seconds = seconds
        self._memory = processes.map_shared_memory(descriptor, BYTES).cast("q")
        self._count, self._silent, self._looked = self._memory[0], 0.0, time.monotonic()

    @property
    def has_begun(self) -> bool:
        """Return whether the process has counted at all."""
        return self._memory[0] != 0

    def is_silent(self) -> bool:
        """Return whether the process has not counted for so long; call this once in `PERIOD`, or less often.

        Only the time between calls counts, so that a process that was stopped itself, as when a machine or a job is
        suspended, does not report others as silent afterwards.
        """
        count, now = self._memory[0], time.monotonic()
        passed, self._looked = now - self._looked, now
        if count != self._count:
            self._count, self._silent = count, 0.0
            return False
        self._silent += min(passed, 2 * PERIOD)
        return self._silent >= self.seconds


def _begin(descriptor: int) -> int:
    """Start a thread that counts in memory."""
    from mirlo.runtime.object_loader import compile_llvm, runtime_ir  # takes 20 ms, and commands import this module

    global _descriptor
    code = compile_llvm(runtime_ir("heartbeat"), is_kept=True)
    count = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32)(code.address("mirlo_heartbeat"))
    memory = processes.map_shared_memory(os.dup(descriptor), BYTES, is_writable=True)
    # The thread counts until the process ends, which is after Python has freed what modules hold.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def run(keep: object = code) -> None:
        count(address, int(PERIOD * 1e6))

    threading.Thread(target=run, name="heartbeat", daemon=True).start()
    _descriptor = descriptor
    return descriptor


def _forget() -> None:
    """Start again in a fork, which has no thread that counts; the thread of its parent continues."""
    global _descriptor
    _descriptor = None


processes.after_fork(_forget)
