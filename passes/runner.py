"""The runner of pipeline steps, observed by instruments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

from mirlo.dialects import wheel
from mirlo.dialects.bindings import ir, passmanager
from mirlo.passes.facts import is_external
from mirlo.passes.instrumentation import Instrument
from mirlo.passes.pass_failed import PassFailed
from mirlo.passes.pipeline_parser import ANCHORS, ANY_ANCHOR, Leaf, Nested, Step
from mirlo.passes.registry import ROOT_ANCHOR, Pass, PassError
from mirlo.passes.session import Session
from mirlo.passes.upstream import UpstreamPass
from mirlo.runtime.callbacks import Expected, check_result, describe_raised
from mirlo.runtime.dropped_interrupts import keeping_interrupts, raise_dropped
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class Runner:
    """One run of a pipeline."""

    session: Session
    instruments: Sequence[Instrument] = ()
    verify_each: bool = True
    trusting: bool = False
    """Whether to verify the output of trusted passes together with that of the next other pass, or at the end."""
    _unverified: list[Leaf] = field(default_factory=list, init=False)
    """The trusted passes that ran since the whole module was last verified."""
    _managers: dict[tuple[UpstreamPass, str], passmanager.PassManager] = field(default_factory=dict, init=False)
    """MLIR's pass managers, cached because their first run prepares them (collects patterns, for example)."""

    @keeping_interrupts()
    def run(self, steps: Sequence[Step], op: ir.OpView) -> None:
        self.session.watching = [instrument for instrument in self.instruments if instrument.watches_inner]
        for i, step in enumerate(steps):
            for instrument in self.instruments:
                instrument.begin_stage(op, steps[i:])
            self._run_step(step, op)
        if self._unverified:
            self._verify(self._unverified.pop(), op)
        for instrument in self.instruments:
            instrument.end_run(op)

    def _run_step(self, step: Step, op: ir.OpView) -> None:
        if isinstance(step, Nested):
            for child in _children(op, step.anchor):
                for inner in step.steps:
                    self._run_step(inner, child)
        elif step.anchor not in (None, op.operation.name):
            for child in _children(op, step.anchor):
                self._run_pass(step, child)
        else:
            self._run_pass(step, op)

    def _run_pass(self, step: Leaf, op: ir.OpView) -> None:
        if isinstance(step, Pass) and step.anchor == "func.func" and (op.is_external or is_external(op)):
            return
        raise_dropped()
        for instrument in self.instruments:
            instrument.before_pass(step, op)
        try:
            self._execute(step, op)
        except Exception as error:
            raise self._failed(_explain(step, error), step, op) from error
        for instrument in self.instruments:
            instrument.before_verify(step, op)
        if self.verify_each:
            if self.trusting and (isinstance(step, UpstreamPass) or step.is_trusted(self.session)):
                self._unverified.append(step)
            else:
                self._verify(step, op)
        for instrument in self.instruments:
            instrument.after_pass(step, op)

    def _execute(self, step: Leaf, op: ir.OpView) -> None:
        if isinstance(step, Pass):
            result: object = step.run(op, self.session)  # type: ignore[func-returns-value] # passes are users' too
            check_result(result, step.run, _NOTHING, f"pass '{step.name}'", PassError)
            return
        key = step, op.operation.name
        if key not in self._managers:
            self._managers[key] = step.manager(op.operation, self.session)
        self._managers[key].run(op.operation)
        wheel.restore_isolation(ir, op.operation)

    def _verify(self, step: Leaf, op: ir.OpView) -> None:
        try:
            op.operation.verify()
        except ir.MLIRError as error:
            others = ", ".join(dict.fromkeys(f"'{other.name}'" for other in self._unverified))
            reason = f"it, or one of {others} before it, left invalid IR" if others else "it left invalid IR"
            raise self._failed(PassFailed(step.name, reason, None, error.error_diagnostics), step, op) from error
        if op.operation.name == ROOT_ANCHOR:
            self._unverified.clear()

    def _failed(self, failure: PassFailed, step: Leaf, op: ir.OpView) -> PassFailed:
        for instrument in self.instruments:
            instrument.pass_failed(step, op, failure)
        return failure


_NOTHING = Expected("nothing: a pass changes `op` in place", lambda value: value is None)


def _children(op: ir.OpView, anchor: str | None) -> Iterator[ir.OpView]:
    """Return a snapshot of the operations of a kind directly below: a pass may add others."""
    names = ANCHORS if anchor == ANY_ANCHOR else (anchor,)
    children = [child for region in op.regions for block in region for child in block if child.operation.name in names]
    yield from children


def _explain(step: Leaf, error: Exception) -> PassFailed:
    if isinstance(error, PassFailed):
        return PassFailed(step.name, error.message, error.location, error.diagnostics, error.internal)
    if isinstance(error, PassError):
        return PassFailed(step.name, error.message, error.location)
    if isinstance(error, ir.MLIRError):
        diagnostics = error.error_diagnostics
        return PassFailed(step.name, "see its errors" if diagnostics else "it gave no reason", None, diagnostics)
    if type(error).__module__.split(".")[0] == "mirlo":
        # Mirlo's own exceptions contain messages for the user.
        return PassFailed(step.name, str(error))
    if isinstance(error, MemoryError):
        return PassFailed(step.name, f"not enough memory for this module: {error}")
    return PassFailed(step.name, describe_raised(error), internal=True)
