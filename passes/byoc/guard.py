"""Trial code generation in a fork, so that a generator that crashes ends the fork only.

The fork has all modules of the compiler loaded, and returns its result through a pipe. If it raises, the compiler
calls the generator again in its own process, so that the error and its traceback are real.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from mirlo.passes.byoc.generator_errors import Crash

RAISED = b"raised"
FINISHED = b"made"


def guarded(generate: Callable[[], Any], quiet: bool = False) -> Any:
    """Return the result of `generate`, computed in a fork where available; `Crash` if the fork dies.

    What a quiet fork writes to standard error is not shown: the `Crash` has it.
    """
    if not hasattr(os, "fork"):
        return generate()
    reading, writing = os.pipe()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # otherwise the fork would write this buffer again
    errors = tempfile.TemporaryFile() if quiet else None  # noqa: SIM115 (the fork writes to it)
    child = os.fork()
    if child == 0:
        os.close(reading)
        if errors is not None:
            faulthandler.disable()  # it may write elsewhere
            os.dup2(errors.fileno(), 2)
        _answer(generate, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        content = answer.read()
    _, status = os.waitpid(child, 0)
    if content.startswith(FINISHED):
        return pickle.loads(content[len(FINISHED) :])
    if content == RAISED:
        return generate()
    said = ""
    if errors is not None:
        errors.seek(0)
        said = errors.read().decode(errors="replace")
    if os.WIFSIGNALED(status):
        raise Crash(f"crashed (signal {signal.Signals(os.WTERMSIG(status)).name})", said)
    raise Crash(f"ended its process with exit code {os.waitstatus_to_exitcode(status)}", said)


def _answer(generate: Callable[[], Any], writing: int) -> None:
    """Report the result in the fork and exit, whatever the generator left behind."""
    try:
        answer = FINISHED + pickle.dumps(generate())
    except BaseException:
        answer = RAISED
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(answer)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)
