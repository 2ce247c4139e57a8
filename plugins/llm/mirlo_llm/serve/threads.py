"""Work on large bodies and answers, in threads beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
INLINE_BYTES = 1 << 14
"""Bytes of bodies and answers that the event loop processes itself, which takes a millisecond."""
THREADS = 2
"""Number of threads; more would make the event loop wait longer for the interpreter lock."""
_threads = ThreadPoolExecutor(THREADS, "mirlo serve bodies")


async def run_in_thread(nbytes: int, work: Callable[[], T]) -> T:
    """Return the result of a function that processes this many bytes; a large number is processed in a thread.

    The function must hold the interpreter lock for a few milliseconds at a time only: it must pass pieces of the bytes
    to functions in C.
    """
    if nbytes <= INLINE_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_threads, work)
