"""Ctrl-C while a model runs: loops of unknown length call Python's signal handlers, and end if one raises.

Compiled code asks `mirlo_poll` (`c/interrupts.c`) after each iteration of such a loop; models without them never do. As
everywhere in Python, handlers run in the main thread only: a call in another thread goes on.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable

from mirlo.runtime.locks import UNCUT, make_lock
from mirlo.runtime.object_loader import compile_llvm, define_symbol, runtime_ir
from mirlo.runtime.records import dataclass

SYMBOL = "mirlo_poll"
"""`bool mirlo_poll(void)`: whether the call is to end."""
_TICKS = {"x86_64": 1 << 26, "amd64": 1 << 26, "aarch64": 1 << 21, "arm64": 1 << 21}
"""Ticks of the counter between two checks of signals, some 20 to 80 ms."""


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
    code = compile_llvm(runtime_ir("interrupts"), is_kept=True)
    begin = ctypes.CFUNCTYPE(None, ctypes.c_uint64)(code.address("mirlo_poll_begin"))
    begin(_TICKS.get(platform.machine().lower(), 0))
    define_symbol(SYMBOL, code.address(SYMBOL))
    error = (ctypes.c_void_p * 3).from_address(code.address("mirlo_poll_error"))
    pointer = ctypes.c_void_p
    restore = ctypes.PYFUNCTYPE(None, pointer, pointer, pointer)(("PyErr_Restore", ctypes.pythonapi))
    return _Poll(error, restore, code)
