"""Interrupts that Python drops: a KeyboardInterrupt in a finalizer or in a callback of a weak reference is not raised.

A compilation frees many objects that have such functions, so that about one interrupt in a hundred comes in one.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

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
