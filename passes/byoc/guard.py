"""Code generation in a fork of the compiler, as a rehearsal: a generator that crashes takes the fork down.

The fork has all that the compiler has loaded, so that nothing is imported again, and what it makes comes back through a
pipe. Where it raises, the compiler asks the generator again, itself, so that the error and its traceback are real.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable
from typing import Any

from mirlo.passes.byoc.generator_errors import Crash

RAISED = b"raised"
MADE = b"made"


def guarded(generate: Callable[[], Any]) -> Any:
    """What `generate` gives, computed in a fork where there is one; `Crash` where that dies."""
    if not hasattr(os, "fork"):
        return generate()
    reading, writing = os.pipe()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # or the fork would write what waits here once more
    child = os.fork()
    if child == 0:
        os.close(reading)
        _answer(generate, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        content = answer.read()
    _, status = os.waitpid(child, 0)
    if content.startswith(MADE):
        return pickle.loads(content[len(MADE) :])
    if content == RAISED:
        return generate()
    if os.WIFSIGNALED(status):
        raise Crash(f"crashed (signal {signal.Signals(os.WTERMSIG(status)).name})")
    raise Crash(f"ended its process with exit code {os.waitstatus_to_exitcode(status)}")


def _answer(generate: Callable[[], Any], writing: int) -> None:
    """In the fork: say what came of it, and end, whatever the generator left behind."""
    try:
        answer = MADE + pickle.dumps(generate())
    except BaseException:
        answer = RAISED
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(answer)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)
