"""Reproducers: the IR before the failing pass and the remaining pipeline, in one file.

    // configuration: --pass-pipeline='builtin.module(legalize,cse)'

`mirlo-opt --run-reproducer FILE` runs it again. The line is part of an untrusted file: passes that reach outside of
the module, and plug-ins, run only with `--trust-file`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.passes.files import FileError, write_ir
from mirlo.passes.instrumentation import Instrument
from mirlo.passes.pipeline_parser import join_steps
from mirlo.passes.registry import ROOT_ANCHOR
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.pipeline_parser import Step
    from mirlo.passes.registry import Pass
    from mirlo.passes.session import Session
    from mirlo.passes.upstream import UpstreamPass

HEADER = "// configuration: "
TRUST = "--trust-file"
"""Flag of `mirlo` and `mirlo-opt`: the input file may name plug-ins, and passes that are not contained."""


@dataclass
class Reproducer(Instrument):
    """Write `path` before each step of the outermost level, and remove it when all have passed.

    The file remains even if a pass crashes the process.
    """

    path: str
    flags: Sequence[str]
    """Further arguments of `mirlo-opt` that the run needs."""
    session: Session
    written: bool = field(default=False, init=False)

    def begin_stage(self, op: ir.OpView, remaining: Sequence[Step]) -> None:
        header = configuration(remaining, self.flags)
        write_ir(op, self.path, self.session, enable_debug_info=True, header=header)
        self.written = True

    def end_run(self, op: ir.OpView) -> None:
        if self.written:
            os.remove(self.path)
            self.written = False


def configuration(remaining: Sequence[Step], flags: Sequence[str] = ()) -> str:
    """Return the line that makes IR a reproducer: the remaining passes and other arguments of `mirlo-opt`."""
    pipeline = shlex.quote(f"{ROOT_ANCHOR}({join_steps(remaining)})")
    return f"{HEADER}{' '.join([f'--pass-pipeline={pipeline}', *flags])}\n"


def arguments_of(text: str) -> list[str] | None:
    """Return the arguments of `mirlo-opt` at the start of a reproducer, or None for other text."""
    first = text.split("\n", 1)[0]
    if not first.startswith(HEADER):
        return None
    try:
        return shlex.split(first[len(HEADER) :])
    except ValueError as error:
        raise FileError(f"the file's first line, '{HEADER}...', cannot be read: {error}") from None


def uncontained(pipeline: Iterable[Pass | UpstreamPass], plugins: Sequence[str] = ()) -> str | None:
    """Return which passes or plug-ins named by a file reach outside of the module; None if none do.

    Text in a file is not authorized by the user: by default only passes run that change nothing but the module.
    """
    if plugins:
        return f"loads the plug-in '{plugins[0]}', which is code"
    for step in pipeline:
        if not step.is_contained():
            return f"runs '{step}', which may touch more than the module: files, other programs"
    return None


def trust_flag(pipeline: Iterable[Pass | UpstreamPass], plugins: Sequence[str] = ()) -> str:
    """Return the flag that a printed command needs, besides `--run-reproducer`, to run these again."""
    return f" {TRUST}" if uncontained(pipeline, plugins) else ""
