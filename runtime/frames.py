"""Space for the frames of Python's calls.

CPython keeps frames in chunks of 16 kB. Where a loop runs at the end of a chunk, each of its calls maps the next one,
and unmaps it when it returns: two calls of the system and page faults for each call of Python.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

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
