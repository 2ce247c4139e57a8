"""Instruments of `mirlo.compile`: they report progress and write the IR of every stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.passes.files import FileError, write_ir
from mirlo.passes.instrumentation import Instrument
from mirlo.passes.memory.weights import release_unnamed
from mirlo.passes.session import Session
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.pipeline_parser import Step


@dataclass
class PipelineProgress(Instrument):
    """Reports the progress of a pipeline."""

    progress: Callable[[str], None]

    def before_pass(self, step: Step, op: ir.OpView) -> None:
        self.progress(step.name)


RELEASING = ("simplify", "fold-constant", "convert-layout", "pack-weights")
"""Passes that put new constants in the place of others."""


@dataclass
class ReleaseWeights(Instrument):
    """Releases arrays without a constant that refers to them, after passes that create new ones."""

    session: Session

    def after_pass(self, step: Step, op: ir.OpView) -> None:
        if step.name in RELEASING:
            release_unnamed(op, self.session)


@dataclass
class SaveStages(Instrument):
    """Writes the module of every stage and the passes that it has before it: `00-import.mlir`, `01-legalize.mlir`..."""

    folder: Path
    session: Session
    count: int = field(default=0, init=False)
    last: str = field(default="import", init=False)

    def begin_stage(self, op: ir.OpView, remaining: Sequence[Step]) -> None:
        self._write(op, remaining)
        step = remaining[0]
        self.last = step.name

    def end_run(self, op: ir.OpView) -> None:
        self._write(op, ())

    def _write(self, op: ir.OpView, remaining: Sequence[Step]) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"cannot write IR to '{self.folder}': {error.strerror or error}") from error
        path = self.folder / f"{self.count:02}-{self.last}.mlir"
        from mirlo.passes.reproducer import configuration

        write_ir(op, path, self.session, enable_debug_info=True, header=configuration(remaining))
        self.count += 1
