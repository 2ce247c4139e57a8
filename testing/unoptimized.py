"""Compilation without the optimizations of LLVM, which take a third of the time of tests that only compare numbers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mirlo.driver.options import DEFAULTS, CompileArguments
from mirlo.driver.request import CompileRequest

UNOPTIMIZED = "MIRLO_TESTS_UNOPTIMIZED"
"""Set for commands that tests run in forks, which do the same."""


def engine_level() -> int:
    """Return the level at which MLIR's execution engine optimizes kernels that are compiled without `mirlo.compile`."""
    return 0 if UNOPTIMIZED in os.environ else 2


@contextmanager
def unoptimized() -> Iterator[None]:
    """Make `opt_level=0` and `jobs=1` the defaults of `mirlo.compile`, in keys of caches too.

    That is in this process, and in forks of `tool_server.py`. Processes that run tests keep all cores busy: workers
    that compile would only take time to start.
    """
    of = CompileRequest.of

    def without_optimizations(arguments: CompileArguments, **changes: Any) -> CompileRequest:
        if arguments.opt_level == DEFAULTS["opt_level"]:
            changes = {"opt_level": 0, **changes}
        if arguments.jobs is None:
            changes = {"jobs": 1, **changes}
        return of(arguments, **changes)

    CompileRequest.of = without_optimizations  # type: ignore[method-assign]
    os.environ[UNOPTIMIZED] = "1"
    try:
        yield
    finally:
        del os.environ[UNOPTIMIZED]
        CompileRequest.of = of  # type: ignore[method-assign]
