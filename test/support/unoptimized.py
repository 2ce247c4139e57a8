"""Compilation without the optimizations of LLVM, which take a third of the time of tests that only compare numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mirlo.driver.options import DEFAULTS, CompileArguments
from mirlo.driver.request import CompileRequest


@contextmanager
def unoptimized() -> Iterator[None]:
    """Let `mirlo.compile` in this process take `opt_level=0` in the place of the default; keys of caches say so."""
    of = CompileRequest.of

    def without_optimizations(arguments: CompileArguments, **changes: Any) -> CompileRequest:
        if arguments.opt_level == DEFAULTS["opt_level"]:
            changes = {"opt_level": 0, **changes}
        return of(arguments, **changes)

    CompileRequest.of = without_optimizations  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        CompileRequest.of = of  # type: ignore[method-assign]
