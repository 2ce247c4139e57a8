"""Fork-safe locks: the child of a fork has none of the threads that would release locks held at that time.

A lock that guards a few statements is reinitialized in the child. A lock of work that must not be interrupted, such
as work inside LLVM (`UNCUT`), is acquired by the forking thread: the fork waits until the work is done.

All locks know the thread that holds them. An interrupt may arrive after the statements of a `with` and before it has
released its lock, where no handler in the same function can release it: work that must survive interrupts ends with
`release_held_locks`.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from mirlo.runtime.processes import after_fork

WAIT_SECONDS = 30.0
"""Maximum time a fork waits for work that must not be interrupted; far longer than loading any model takes."""
FORK_SECONDS = 0.0005
"""Polling interval of a thread that waits for a fork to finish."""


def make_lock() -> threading.RLock:
    """Return a recursive lock that is free in the child of a fork."""
    lock = threading.RLock()
    _add(lock)
    return lock


def release_held_locks() -> None:
    """Release the locks that this thread holds because an interrupt arrived at the end of a `with`.

    For handlers of exceptions, in functions whose callers hold no lock of this module.
    """
    for lock in held_locks():
        while lock._is_owned():
            lock.release()


def held_locks() -> list[Any]:
    """Return the locks of this module that this thread holds."""
    return [lock for lock in (*_all_locks(), UNCUT) if lock._is_owned()]


class ReleasingLock:
    """A recursive lock of a resource, under which finalizers release what they hold of it.

    Python runs a finalizer at any point of any thread: one that acquires a lock may wait for a thread that waits for
    it, and one that runs in the thread that holds the lock interrupts it. `defer` never waits: what is released is
    released now if the lock is free, and by the one that holds it, at the end, if it is not.
    """

    def __init__(self) -> None:
        self._lock: Any = threading.RLock()
        self._depth = 0
        self._deferred: deque[Callable[[], None]] = deque()
        _add(self)

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(self, *unused: object) -> None:
        self.release()

    def release(self) -> None:
        """Leave the lock; the last thread to leave releases the deferred resources."""
        self._depth = max(0, self._depth - 1)  # it is 0 if `__enter__` was interrupted
        self._lock.release()
        self._settle()

    def defer(self, release: Callable[[], None]) -> None:
        """Release something as soon as nothing holds the lock."""
        self._deferred.append(release)
        self._settle()

    def _settle(self) -> None:
        # What is added while another thread holds the lock is seen by that thread once it has released the lock.
        while self._deferred and self._lock.acquire(blocking=False):
            try:
                if self._depth:
                    return
                self._run_deferred()
            finally:
                self._lock.release()

    def _run_deferred(self) -> None:
        self._depth += 1
        try:
            while self._deferred:
                self._deferred.popleft()()
        finally:
            self._depth -= 1

    def _at_fork_reinit(self) -> None:
        self._lock._at_fork_reinit()
        self._depth = 0

    def _is_owned(self) -> bool:
        return bool(self._lock._is_owned())


_locks: set[weakref.ref[Any]] = set()
"""A set that is copied in one go, while other threads may add locks, as a `WeakSet` is not."""


def _add(lock: object) -> None:
    _locks.add(weakref.ref(lock, _locks.discard))


def _all_locks() -> list[Any]:
    return [lock for reference in list(_locks) if (lock := reference()) is not None]


class _UncutWork:
    """A recursive lock that a forking thread acquires before the threads that wait for it."""

    def __init__(self) -> None:
        self._lock: Any = threading.RLock()
        self._forks = 0
        self._taken = threading.local()

    def __enter__(self) -> None:
        while self._forks and not self._lock._is_owned():
            time.sleep(FORK_SECONDS)
        self._lock.acquire()

    def __exit__(self, *unused: object) -> None:
        self.release()

    def release(self) -> None:
        self._lock.release()

    def before_fork(self) -> None:
        self._forks += 1
        self._taken.value = self._lock.acquire(timeout=WAIT_SECONDS)
        # Unreferenced engines are freed at any point, under llvmlite's own lock alone.
        self._taken.llvmlite = lock = _llvmlite_lock()
        if lock is not None and not lock.acquire(timeout=WAIT_SECONDS):
            self._taken.llvmlite = None

    def after_in_parent(self) -> None:
        self._forks -= 1
        self._release_llvmlite()
        if self._taken.value:
            self._lock.release()

    def after_in_child(self) -> None:
        self._forks = 0
        self._release_llvmlite()
        self._lock._at_fork_reinit()

    def _is_owned(self) -> bool:
        return bool(self._lock._is_owned())

    def _release_llvmlite(self) -> None:
        if self._taken.llvmlite is not None:
            self._taken.llvmlite.release()
            self._taken.llvmlite = None


def _llvmlite_lock() -> threading.Lock | None:
    """Return the lock that llvmlite holds in each call of LLVM; None if it is not imported."""
    wrapper = getattr(getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None), "_lock", None)
    return getattr(wrapper, "_lock", None)


UNCUT = _UncutWork()
"""Held while models are loaded and while LLVM works without Python's lock: a fork in that time would leave locks of
LLVM and of Python's imports held in the child forever, and tables half built."""


def _renew() -> None:
    for lock in _all_locks():
        lock._at_fork_reinit()


after_fork(before=UNCUT.before_fork, in_parent=UNCUT.after_in_parent, in_child=UNCUT.after_in_child)
after_fork(_renew)
