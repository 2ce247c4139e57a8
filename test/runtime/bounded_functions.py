"""Functions of a bounded process, most of which do what nothing should."""

from __future__ import annotations

import ctypes
import os
import re
import time
from collections.abc import Mapping

from mirlo.runtime.bounded_process import ArgumentsRefused, Function, Result


def open(content: bytes, problem: str = "") -> Mapping[str, Function]:
    """Return the functions; with a problem, do that at once."""
    if problem:
        FUNCTIONS[problem](content)
    return FUNCTIONS


def echo(content: bytes, value: object = None) -> Result:
    return Result({"value": value, "process": os.getpid()}, content)


def refuse(content: bytes) -> Result:
    raise ArgumentsRefused("these arguments are wrong")


def fail(content: bytes) -> Result:
    raise ValueError("it cannot be")


def crash(content: bytes) -> Result:
    ctypes.memset(0, 0, 1)
    return Result()


def end(content: bytes) -> Result:
    os._exit(3)


def sleep(content: bytes) -> Result:
    time.sleep(60)
    return Result()


def compute(content: bytes) -> Result:
    """Hold Python's lock in C for longer than anybody waits."""
    re.fullmatch("(a+)+b", "a" * 64)
    return Result()


def grow(content: bytes) -> Result:
    held = [bytearray(1 << 24) for _ in range(1 << 20)]
    return Result({"held": len(held)})


def recurse(content: bytes) -> Result:
    """Recurse in C until the stack ends: `qsort` calls itself through its comparison."""
    libc = ctypes.CDLL(None)
    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    numbers = (ctypes.c_int * 2)()

    @compare
    def again(a: object, b: object) -> int:
        libc.qsort(numbers, 2, 4, again)
        return 0

    import sys

    sys.setrecursionlimit(1 << 30)
    libc.qsort(numbers, 2, 4, again)
    return Result()


FUNCTIONS: Mapping[str, Function] = {
    "echo": echo, "refuse": refuse, "fail": fail, "crash": crash, "end": end, "sleep": sleep, "compute": compute,
    "grow": grow, "recurse": recurse,
}  # fmt: skip
