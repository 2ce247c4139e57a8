"""Instrumentation of pipelines: hooks, and printing IR around passes."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, ClassVar, TextIO

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.passes.files import write_ir
from mirlo.passes.locations import describe
from mirlo.passes.pipeline_parser import Nested
from mirlo.passes.registry import PassError
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.pipeline_parser import Leaf, Step
    from mirlo.passes.session import Session


class PassFailed(PassError):
    """Raised when a pass of a pipeline fails.

    `diagnostics` come from MLIR; `internal` marks an exception that the pass did not raise on purpose.
    """

    error_code = "MIR0402"
    remedy = "See the reason in the message; `--debug` shows where an internal one happened."

    def __init__(
        self,
        name: str,
        reason: str,
        location: ir.Location | None = None,
        diagnostics: Sequence[ir.DiagnosticInfo] = (),
        internal: bool = False,
    ):
        super().__init__(f"pass '{name}' failed: {reason}", location)
        self.pass_name = name
        self.diagnostics = tuple(diagnostics)
        self.internal = internal

    def __str__(self) -> str:
        lines = [f"{describe(self.location)}: {self.message}" if self.location is not None else self.message]
        lines += [f"  {describe(d.location)}: {d.severity.name.lower()}: {d.message}" for d in self.diagnostics]
        return "\n".join(lines)


class Instrument:
    """Hooks around the passes of a run; the default implementations do nothing."""

    watches_inner: ClassVar[bool] = False
    """Whether to observe passes that other passes run (on an external module, for example)."""

    def begin_stage(self, op: ir.OpView, remaining: Sequence[Step]) -> None:
        """Handle the start of a step of the outermost level; `remaining` starts with it."""

    def before_pass(self, step: Leaf, op: ir.OpView) -> None:
        """Handle a pass before it runs on one operation."""

    def before_verify(self, step: Leaf, op: ir.OpView) -> None:
        """Handle a pass that ran, before its output is verified."""

    def after_pass(self, step: Leaf, op: ir.OpView) -> None:
        """Handle a pass after its verification."""

    def after_function(self, step: Leaf, function: ir.OpView, session: Session) -> None:
        """Handle a function that a pass over a module has finished, before it finishes the others."""

    def pass_failed(self, step: Leaf, op: ir.OpView, failure: PassFailed) -> None:
        """Handle a pass or a verification that failed; `after_pass` is not called."""

    def end_run(self, op: ir.OpView) -> None:
        """Handle the end of a pipeline of which no pass failed."""


def function_done(step: Leaf, function: ir.OpView, session: Session) -> None:
    """Notify the instruments that a pass over a module has finished one of its functions."""
    for instrument in session.watching:
        instrument.after_function(step, function, session)


class Preparation(Instrument):
    """The work of a target for its emitter while passes run, which it observes."""

    def close(self) -> None:
        """End the work: the code was emitted, or the compilation failed."""


@dataclass
class PrintIR(Instrument):
    """Print the IR before and after the named passes; None stands for all passes."""

    before: Collection[str] | None = ()
    after: Collection[str] | None = ()
    only_changes: bool = False
    failures: bool = False
    """Whether to print the output of a failing pass."""
    module_scope: bool = False
    """Whether to print the whole module if a pass ran on a part of it."""
    debug_info: bool = False
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    watches_inner: ClassVar[bool] = True
    _before: list[str] = field(default_factory=list)
    """The input IR of the running passes, from outer to nested ones."""

    def before_pass(self, step: Leaf, op: ir.OpView) -> None:
        if _selects(self.before, step):
            self._print("Before", step, op, self._text(op))
        if self.only_changes and _selects(self.after, step):
            self._before.append(self._text(op))

    def after_pass(self, step: Leaf, op: ir.OpView) -> None:
        if not _selects(self.after, step):
            return
        text = self._text(op)
        if not self.only_changes or text != self._before.pop():
            self._print("After", step, op, text)

    def pass_failed(self, step: Leaf, op: ir.OpView, failure: PassFailed) -> None:
        if self.failures or _selects(self.after, step):
            self._print("After", step, op, self._text(op), " Failed")

    def _text(self, op: ir.OpView) -> str:
        printed = op.operation
        while self.module_scope and printed.parent is not None:
            printed = printed.parent.operation
        return str(printed.get_asm(enable_debug_info=self.debug_info))

    def _print(self, when: str, step: Leaf, op: ir.OpView, text: str, suffix: str = "") -> None:
        header = f"// -----// IR Dump {when} {step.name}{suffix}{_which(op)} //----- //"
        self.stream.write(f"{header}\n{text.rstrip()}\n\n")


@dataclass
class LogActions(Instrument):
    """Write a line as each pass begins and ends, in the format of LLVM's `--log-actions-to`."""

    stream: TextIO
    watches_inner: ClassVar[bool] = True

    def before_pass(self, step: Leaf, op: ir.OpView) -> None:
        self.stream.write(f"begins Action `pass-execution` running `{step.name}` on Operation `{op.operation.name}`\n")

    def after_pass(self, step: Leaf, op: ir.OpView) -> None:
        self.stream.write(f"completed `pass-execution` running `{step.name}`\n")

    def pass_failed(self, step: Leaf, op: ir.OpView, failure: PassFailed) -> None:
        self.stream.write(f"failed `pass-execution` running `{step.name}`\n")


@dataclass
class SaveIR(Instrument):
    """Write the module at every step of the outermost level to a folder: `00-input.mlir`, `01-fold-constant.mlir`...

    `mirlo-opt` can continue from each file.
    """

    folder: str
    session: Session
    debug_info: bool = True
    _count: int = 0
    _last: str = "input"

    def begin_stage(self, op: ir.OpView, remaining: Sequence[Step]) -> None:
        self._save(op)
        step = remaining[0]
        self._last = f"{step.name}-{step.steps[0].name}" if isinstance(step, Nested) else step.name

    def end_run(self, op: ir.OpView) -> None:
        self._save(op)

    def _save(self, op: ir.OpView) -> None:
        os.makedirs(self.folder, exist_ok=True)
        path = os.path.join(self.folder, f"{self._count:02}-{self._last}.mlir")
        self._count += 1
        write_ir(op, path, self.session, enable_debug_info=self.debug_info)


def _selects(names: Collection[str] | None, step: Leaf) -> bool:
    return names is None or step.name in names


def _which(op: ir.OpView) -> str:
    symbol = symbol_name(op)
    return f" ('{op.operation.name}' operation: @{symbol})" if symbol else ""
