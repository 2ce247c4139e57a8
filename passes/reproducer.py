"""Reproducers: the IR before the pass that failed, and what remained to be run, in one file.

    // configuration: --pass-pipeline='builtin.module(legalize,cse)'

`mirlo-opt --run-reproducer FILE` runs it again.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirlo.passes.files import write_ir
from mirlo.passes.instrumentation import Instrument
from mirlo.passes.pipeline_parser import join_steps
from mirlo.passes.registry import ROOT_ANCHOR

if TYPE_CHECKING:
    from mirlo.passes.pipeline_parser import Step
    from mirlo.passes.session import Session

HEADER = "// configuration: "


@dataclass
class Reproducer(Instrument):
    """Writes `path` before each step of the outermost level, and removes it when all have passed.

    The file is there even when a pass takes the whole process down.
    """

    path: str
    flags: Sequence[str]
    """Further arguments of `mirlo-opt` that the run needs."""
    session: Session
    written: bool = field(default=False, init=False)

    def begin_stage(self, op: Any, remaining: Sequence[Step]) -> None:
        header = configuration(remaining, self.flags)
        write_ir(op, self.path, self.session, enable_debug_info=True, header=header)
        self.written = True

    def end_run(self, op: Any) -> None:
        if self.written:
            os.remove(self.path)
            self.written = False


def configuration(remaining: Sequence[Step], flags: Sequence[str] = ()) -> str:
    """The line that makes IR a reproducer: the passes that it has before it, and what else `mirlo-opt` must be told."""
    pipeline = shlex.quote(f"{ROOT_ANCHOR}({join_steps(remaining)})")
    return f"{HEADER}{' '.join([f'--pass-pipeline={pipeline}', *flags])}\n"


def arguments_of(text: str) -> list[str] | None:
    """The arguments of `mirlo-opt` that a reproducer's text starts with, or None if it is no reproducer."""
    first = text.split("\n", 1)[0]
    return shlex.split(first[len(HEADER) :]) if first.startswith(HEADER) else None
