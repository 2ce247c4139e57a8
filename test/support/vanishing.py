"""What another process takes away while this one reads: before each call of the system, one after another."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

SYSTEM = frozenset({"posix", "nt", "io", "_io"})
"""The modules whose functions and methods ask the system for something."""


class _Interrupted:
    """Calls a function before the call of a given number to the system."""

    def __init__(self, number: int, interrupt: Callable[[], object]) -> None:
        self.left, self.interrupt, self.before = number, interrupt, ""

    def __call__(self, frame: FrameType, event: str, called: Any) -> None:
        owner = type(getattr(called, "__self__", None)).__module__
        if event != "c_call" or not SYSTEM & {getattr(called, "__module__", None), owner}:
            return
        self.left -= 1
        if self.left == 0:
            sys.setprofile(None)
            self.before = called.__qualname__
            self.interrupt()


def interrupted(action: Callable[[], object], interrupt: Callable[[], object]) -> Iterator[tuple[str, object]]:
    """Run an action again and again, interrupted before the first, second, ... of its calls to the system.

    Yield the name of the function before which the action was interrupted, and its result. What prepares the next run
    is done in between.
    """
    number = 1
    while True:
        profile, before = _Interrupted(number, interrupt), sys.getprofile()
        sys.setprofile(profile)
        try:
            result = action()
        finally:
            sys.setprofile(before)
        if profile.left > 0:
            return
        yield profile.before, result
        number += 1
