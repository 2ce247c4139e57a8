"""Fast exit of a command, without the interpreter's cleanup.

Before Python ends it frees every object and every module, one by one: a quarter of the time of a short command. The
system frees the same at once.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """End the process like `sys.exit`: run exit handlers and flush output."""
    if _is_watched() or _has_running_threads():
        sys.exit(code)
    # Also the finalizers of `weakref.finalize`, with which temporary folders go away.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError) as error:
            # A closed pipe or a full disk: what was printed is lost.
            code = code or 1
            with contextlib.suppress(OSError, ValueError):
                print(f"{stream.name}: {error}", file=sys.stderr, flush=True)
    os._exit(code)


def _is_watched() -> bool:
    """Return whether a profiler, a debugger or a prompt needs the process afterwards."""
    monitoring = getattr(sys, "monitoring", None)
    tools = any(monitoring.get_tool(i) is not None for i in range(6)) if monitoring is not None else False
    return tools or sys.gettrace() is not None or sys.getprofile() is not None or bool(sys.flags.interactive)


def _has_running_threads() -> bool:
    """Return whether there are threads that the process waits for."""
    return any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread())
