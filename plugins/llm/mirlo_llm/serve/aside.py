"""Work on large bodies and answers, in threads outside of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
INLINE_BYTES = 1 << 14
"""Bytes of bodies and answers that are parsed and written in the event loop, which takes a millisecond."""
THREADS = 2
"""More of them would make the event loop wait longer for Python's lock: each takes it in turn."""
_threads = ThreadPoolExecutor(THREADS, "mirlo serve bodies")


async def run_aside(nbytes: int, work: Callable[[], T]) -> T:
    """Return what a function returns that works on so many bytes: in a thread if they are many.

    The function must hold Python's lock for a few milliseconds at a time only: calls of C take up to a piece of the
    bytes, not all.
    """
    if nbytes <= INLINE_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_threads, work)
