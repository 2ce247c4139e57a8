"""One compilation and run in a separate process, so that a crash is a result like any other."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mirlo.tools.bisect.compare import Tolerance, difference
from mirlo.tools.bisect.submodel import Submodel

TIMEOUT = 300.0
"""Seconds after which a compilation or a run counts as hanging."""


@dataclass(frozen=True)
class TrialOptions:
    """The options for compiling and comparing submodels."""

    target: str = "llvm"
    threads: int = 1
    pipeline: str | None = None
    tolerance: Tolerance = field(default_factory=Tolerance)
    timeout: float = TIMEOUT
    plugins: tuple[str, ...] = ()
    """The loaded plug-ins, which a replay must load again."""


@dataclass(frozen=True)
class Trial:
    """The result of a trial: how a submodel departs from the expected values, if it does."""

    departs: str | None
    """A description; None if all values are as expected."""
    failed: bool = False
    """Whether compilation failed or the process crashed, so that there are no values to compare."""
    values: dict[str, Any] = field(default_factory=dict)


def try_submodel(
    part: Submodel, expected: Mapping[str, Any], settings: TrialOptions, save_ir: str | None = None
) -> Trial:
    """Compile a submodel, run it, and compare."""
    try:
        context = multiprocessing.get_context("fork")
    except ValueError:  # on systems without fork
        context = multiprocessing.get_context("spawn")  # type: ignore[assignment]
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_compute, args=(sender, part, settings, save_ir), daemon=True)  # type: ignore[attr-defined]
    child.start()
    sender.close()
    try:
        answer = receiver.recv() if receiver.poll(settings.timeout) else None
    except EOFError:
        answer = "crashed"
    if answer is None:
        child.kill()
        child.join()
        return Trial(f"no result after {settings.timeout:.0f} s", failed=True)
    child.join()
    if answer == "crashed":
        return Trial(_death(child.exitcode), failed=True)
    problem, values = answer
    if problem is not None:
        return Trial(problem, failed=True)
    for name in part.outputs:
        text = difference(values.get(name), expected[name], settings.tolerance)
        if text is not None:
            return Trial(f"'{name}': {text}", values=values)
    return Trial(None, values=values)


def _compute(sender: Any, part: Submodel, settings: TrialOptions, save_ir: str | None) -> None:
    """Send the values, or the error, from the child process."""
    from mirlo.driver.compile import compile as compile_model
    from mirlo.tools.cli.errors import explain

    # The error that is sent contains MLIR's diagnostics; failing trials are part of the search.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        executable = compile_model(
            part.model, settings.target, threads=settings.threads, pipeline=settings.pipeline, save_ir=save_ir
        )
        answer: tuple[str | None, dict[str, Any]] = (None, executable.run(part.feeds))
    except Exception as error:
        answer = (explain(error), {})
    sender.send(answer)
    sender.close()


def _death(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"the process was killed by {signal.Signals(-exitcode).name}"
    return f"the process ended with exit code {exitcode}"
