"""Trial code generation in a fork, so that a generator that crashes ends the fork only.

The fork has all modules of the compiler loaded, and returns its result through a pipe. If it raises, the compiler
calls the generator again in its own process, so that the error and its traceback are real.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from typing import TypeVar

from mirlo.passes.byoc.generator_errors import Crash
from mirlo.runtime import processes

T = TypeVar("T")

RAISED = b"raised"
FINISHED = b"made"


def guarded(generate: Callable[[], T], quiet: bool = False) -> T:
    """Return the result of `generate`, computed in a fork where available; `Crash` if the fork dies.

    What a quiet fork writes to standard error is not shown: the `Crash` has it.
    """
    if not processes.can_fork():
        return generate()
    with tempfile.TemporaryFile() if quiet else nullcontext() as errors:
        ended = processes.run_forked(lambda: _answer(generate), errors=errors.fileno() if errors is not None else None)
        if ended.content.startswith(FINISHED):
            result: T = pickle.loads(ended.content[len(FINISHED) :])
            return result
        if ended.content == RAISED:
            return generate()
        error_text = ""
        if errors is not None:
            errors.seek(0)
            error_text = errors.read().decode(errors="replace")
    if ended.code < 0:
        raise Crash(f"crashed (signal {processes.signal_name(-ended.code)})", error_text)
    raise Crash(f"ended its process with exit code {ended.code}", error_text)


def _answer(generate: Callable[[], object]) -> bytes:
    """Return the result of the fork as bytes, whatever the generator leaves behind."""
    try:
        return FINISHED + pickle.dumps(generate())
    except BaseException:
        return RAISED
