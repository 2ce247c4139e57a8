"""Python's interpreter while a model is compiled: its search for garbage, the memory of its frames, its interrupts.

A compilation makes hundreds of thousands of objects that it keeps, few of them in cycles: looking through them after
every 700 new ones takes a tenth of its time.

CPython keeps frames in chunks of 16 kB. Where a loop runs at the end of a chunk, each of its calls maps the next one,
and unmaps it when it returns: two calls of the system and page faults for each call of Python.

Python drops a KeyboardInterrupt in a finalizer or in a callback of a weak reference: it is not raised. A compilation
frees many objects that have such functions, so that about one interrupt in a hundred comes in one.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from functools import wraps
from typing import Literal, ParamSpec, TypeVar

from mirlo.runtime.locks import make_lock

_OBJECTS = 1_000_000
"""New objects before the collector looks at them."""
_lock = make_lock()
_running = 0
_usual = gc.get_threshold()


def _collect_less() -> None:
    # 0 is how some programs turn it off.
    if 0 < _usual[0] < _OBJECTS:
        gc.set_threshold(_OBJECTS, *_usual[1:])


class FewerCollections(ContextDecorator):
    """Lets the collector run seldom while one of these is entered; the last one to leave restores its setting."""

    def __enter__(self) -> None:
        global _running, _usual
        with _lock:
            if not _running:
                _usual = gc.get_threshold()
                _collect_less()
            _running += 1

    def __exit__(self, *unused: object) -> Literal[False]:
        global _running
        with _lock:
            _running -= 1
            if not _running:
                gc.set_threshold(*_usual)
        return False


def make_old() -> None:
    """Move all objects to the oldest generation, which the collector looks at seldom, without looking at them now.

    Nothing changes where a program keeps objects out of collections: they would come back to that generation. Counting
    them takes 8 ms for a million, so this is for imports, not for each compilation.
    """
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()


class UsualCollections(ContextDecorator):
    """Lets the collector run as usual inside of what `FewerCollections` runs, such as a server that a command starts.

    A collection that looks at a million new objects keeps all threads of a process for a second.
    """

    def __enter__(self) -> None:
        global _running
        with _lock:
            self._outer, _running = _running, 0
            if self._outer:
                gc.set_threshold(*_usual)

    def __exit__(self, *unused: object) -> Literal[False]:
        global _running
        with _lock:
            if self._outer and not _running:
                _collect_less()
            _running += self._outer
        return False


P = ParamSpec("P")
T = TypeVar("T")

_SLOTS = 66_000
"""Slots of the frame that gets a chunk of its own. The chunk is twice the next smaller power of two, 1 MB, and half of
it is left for the frames of calls, more than the limit of recursion allows. Pages that are not used take no memory."""


def with_frame_space(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that calls this one with space for the frames of all of its calls."""

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)

    call.__code__ = call.__code__.replace(co_stacksize=_SLOTS)
    return wraps(function)(call)


_dropped = False
"""Whether an interrupt was dropped and not yet raised."""


@contextmanager
def keeping_interrupts() -> Iterator[None]:
    """Raise an interrupt that Python drops in the block by the next `raise_dropped`, or at the end of the block."""
    if threading.current_thread() is not threading.main_thread():
        yield  # no handler of signals runs here
        return
    before = sys.unraisablehook

    def note(unraisable: sys.UnraisableHookArgs) -> None:
        global _dropped
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            _dropped = True
        else:
            before(unraisable)

    sys.unraisablehook = note
    try:
        yield
    finally:
        if sys.unraisablehook is note:
            sys.unraisablehook = before
        raise_dropped()


def raise_dropped() -> None:
    """Raise the interrupt that was dropped, if one was, in the thread that interrupts come to."""
    global _dropped
    if _dropped and threading.current_thread() is threading.main_thread():
        _dropped = False
        raise KeyboardInterrupt
