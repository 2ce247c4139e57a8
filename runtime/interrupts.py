"""Ctrl-C while a model runs: loops of unknown length call Python's signal handlers, and end if one raises.

Compiled code asks `mirlo_poll` (`interrupts.ll`) after each iteration of such a loop; models without them never do. As
everywhere in Python, handlers run in the main thread only: a call in another thread goes on.
"""

from __future__ import annotations

import ctypes
import platform
import re
from collections.abc import Callable
from pathlib import Path

from mirlo.runtime.locks import UNCUT, make_lock
from mirlo.runtime.object_loader import compile_llvm, define_symbol
from mirlo.runtime.records import dataclass

SYMBOL = "mirlo_poll"
"""`bool mirlo_poll(void)`: whether the call is to end."""
POLLS = "polls"
"""Metadata of an artifact whose code calls `mirlo_poll`."""
_MAX_ITERATIONS = 256
"""Iterations, at most, between two looks at the clock."""
_TICKS = {"x86_64": 1 << 26, "amd64": 1 << 26, "aarch64": 1 << 21, "arm64": 1 << 21}
"""Ticks of the counter between two checks of signals, some 20 to 80 ms."""
_LOOKS = 256
"""Looks at the clock for each check: iterations that take longer are asked one by one."""


@dataclass(frozen=True)
class _Poll:
    error: ctypes.Array[ctypes.c_void_p]
    """The type, the value and the traceback of the exception that ended a call; null without one."""
    restore: Callable[..., None]
    keep: object


_lock = make_lock()
_poll: _Poll | None = None


def ensure() -> None:
    """Define `mirlo_poll` for code that is loaded from now on."""
    global _poll
    with UNCUT, _lock:
        if _poll is None:
            _poll = _define()


def raise_pending() -> None:
    """Raise the exception of the signal handler that ended a call, if one did."""
    if _poll is None or not _poll.error[0]:
        return
    taken = tuple(_poll.error)
    for i in range(3):
        _poll.error[i] = None
    _poll.restore(*taken)


def _define() -> _Poll:
    code = compile_llvm(_text(), addresses=_addresses(), is_kept=True)
    define_symbol(SYMBOL, code.address(SYMBOL))
    error = (ctypes.c_void_p * 3).from_address(code.address("error"))
    pointer = ctypes.c_void_p
    restore = ctypes.PYFUNCTYPE(None, pointer, pointer, pointer)(("PyErr_Restore", ctypes.pythonapi))
    return _Poll(error, restore, code)


def _addresses() -> dict[str, int]:
    api = ctypes.pythonapi
    functions = {
        "TAKE_LOCK": api.PyGILState_Ensure,
        "GIVE_LOCK": api.PyGILState_Release,
        "CHECK_SIGNALS": api.PyErr_CheckSignals,
        "FETCH_ERROR": api.PyErr_Fetch,
    }
    return {key: ctypes.cast(function, ctypes.c_void_p).value or 0 for key, function in functions.items()}


def _text() -> str:
    """Return the LLVM IR, in which the words of `_addresses` stay."""
    ticks = _TICKS.get(platform.machine().lower(), 0)
    numbers: dict[str, int | str] = {"CHECK_TICKS": ticks, "SHORT_TICKS": max(ticks // _LOOKS, 1)}
    numbers["MOST_ITERATIONS"] = _MAX_ITERATIONS
    numbers["TICKS"] = "call i64 @llvm.readcyclecounter()" if ticks else "add i64 0, 0"
    template = Path(__file__).with_name("interrupts.ll").read_text(encoding="utf-8")
    declared = "declare i64 @llvm.readcyclecounter()\n" if ticks else ""
    return declared + re.sub(r"\b[A-Z_]{5,}\b", lambda word: str(numbers.get(word.group(), word.group())), template)
