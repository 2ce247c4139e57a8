"""Pipelines: built from text or passes, edited by name, printed, run."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any

from mirlo.dialects import wheel
from mirlo.dialects.bindings import ir, passmanager
from mirlo.passes.facts import is_external
from mirlo.passes.instrumentation import Instrument, PassFailed
from mirlo.passes.pipeline_parser import (
    ANCHORS,
    ANY_ANCHOR,
    MAX_NESTING,
    Leaf,
    Nested,
    PipelineError,
    Step,
    join_steps,
    misplaced,
    parse_steps,
)
from mirlo.passes.registry import ROOT_ANCHOR, Pass, PassError
from mirlo.passes.session import Session
from mirlo.passes.upstream import UpstreamPass
from mirlo.runtime.callbacks import Expected, check_result, describe_raised
from mirlo.runtime.errors import nearest_name
from mirlo.runtime.interpreter import keeping_interrupts, raise_dropped
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class Runner:
    """One run of a pipeline."""

    session: Session
    instruments: Sequence[Instrument] = ()
    verify_each: bool = True
    trusting: bool = False
    """Whether to verify the output of trusted passes together with that of the next other pass, or at the end."""
    unverified: list[Leaf] = field(default_factory=list)
    """The trusted passes that ran since the whole module was last verified."""
    is_last: bool = True
    """Whether to verify what trusted passes left at the end, rather than with what the next run leaves."""
    _managers: dict[tuple[UpstreamPass, str], passmanager.PassManager] = field(default_factory=dict, init=False)
    """MLIR's pass managers, cached because their first run prepares them (collects patterns, for example)."""

    @keeping_interrupts()
    def run(self, steps: Sequence[Step], op: ir.OpView) -> None:
        self.session.watching = [instrument for instrument in self.instruments if instrument.watches_inner]
        for i, step in enumerate(steps):
            for instrument in self.instruments:
                instrument.begin_stage(op, steps[i:])
            self._run_step(step, op)
        if self.unverified and self.is_last:
            self._verify(self.unverified.pop(), op)
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
                self.unverified.append(step)
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
            others = ", ".join(dict.fromkeys(f"'{other.name}'" for other in self.unverified))
            reason = f"it, or one of {others} before it, left invalid IR" if others else "it left invalid IR"
            raise self._failed(PassFailed(step.name, reason, None, error.error_diagnostics), step, op) from error
        if op.operation.name == ROOT_ANCHOR:
            self.unverified.clear()

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


__all__ = ["Pipeline", "PipelineError", "PassFailed", "Steps"]

Steps = str | Pass | UpstreamPass | Nested | Iterable[str | Pass | UpstreamPass | Nested]
"""What functions with a parameter `steps` accept: text, a pass, or several of these."""


class Pipeline:
    """Passes in order, over one module.

        pipeline = Pipeline("fold-constant,func.func(cse),legalize{target=llvm}")
        pipeline.insert_before("legalize", "canonicalize").remove("cse")
        pipeline.run(module)

    The editing methods change the pipeline and return it. They take the name of a pass, which may be nested; if the
    name occurs several times, `occurrence` (from 0) selects one.
    """

    def __init__(self, steps: Steps = ()):
        self.steps: tuple[Step, ...] = _as_steps(steps, ROOT_ANCHOR)

    @classmethod
    def named(cls, name: str, options: Any = None) -> Pipeline:
        """Return a new pipeline of a target: `llvm`, or one of its named pipelines, `llvm:graph`.

        The target's pipeline may depend on `options`.
        """
        from mirlo.passes.targets import TargetError, find_target

        target_name, _, stage = name.partition(":")
        try:
            target = find_target(target_name)
        except TargetError as error:
            raise PipelineError(str(error)) from error
        own = target.pipeline if target.has("pipeline") else None
        build = target.pipelines().get(stage) if stage else own
        if build is None:
            has = ", ".join(f"{target_name}:{known}" for known in target.pipelines()) or "no others"
            what = f"pipeline '{stage}'" if stage else "pipeline of its own"
            raise PipelineError(f"target '{target_name}' has no {what}; it has {has}")
        return cls(build(options))

    def run(
        self,
        module: ir.Module | ir.OpView,
        session: Session | None = None,
        instrumentation: Sequence[Instrument] = (),
        verify_each: bool = True,
        trusting: bool = False,
        unverified: list[Leaf] | None = None,
        is_last: bool = True,
    ) -> None:
        """Run every pass on a module, in place. Raise `PassFailed`, with the module as the failing pass left it.

        With `trusting`, the output of `Pass.trusted` passes is verified together with that of the next other pass.
        Pipelines that run one after the other share the list of those that are `unverified`; the last one verifies it.
        """
        operation = getattr(module, "operation", None)
        if operation is None or operation.name != ROOT_ANCHOR:
            raise TypeError(f"a pipeline runs on a module, got {type(module).__name__}")
        with operation.context, ir.Location.unknown():
            pending = [] if unverified is None else unverified
            runner = Runner(session or Session(), instrumentation, verify_each, trusting, pending, is_last)
            runner.run(self.steps, operation.opview)

    def names(self) -> list[str]:
        """Return the names of all passes in order, including nested ones."""
        return [step.name for step in self]

    def __iter__(self) -> Iterator[Pass | UpstreamPass]:
        return _leaves(self.steps)

    def __len__(self) -> int:
        return len(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def __getitem__(self, name: str) -> Pass | UpstreamPass:
        self._require(name, None)
        return next(step for step in self if step.name == name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pipeline) and self.steps == other.steps

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"{ROOT_ANCHOR}({join_steps(self.steps)})"

    def __repr__(self) -> str:
        return f"Pipeline({str(self)!r})"

    def copy(self) -> Pipeline:
        return Pipeline(self.steps)

    def append(self, steps: Steps) -> Pipeline:
        """Append steps at the end."""
        self.steps += _as_steps(steps, ROOT_ANCHOR)
        return self

    def __add__(self, steps: Steps) -> Pipeline:
        """Return a new pipeline with steps at the end: `pipeline + "cse"`, `pipeline + other`."""
        return self.copy().append(steps)

    def __radd__(self, steps: Steps) -> Pipeline:
        return self.copy().prepend(steps)

    def prepend(self, steps: Steps) -> Pipeline:
        """Insert steps at the start."""
        self.steps = _as_steps(steps, ROOT_ANCHOR) + self.steps
        return self

    def insert_before(self, name: str, steps: Steps, occurrence: int | None = None) -> Pipeline:
        """Insert steps before a pass, at its level of nesting."""
        return self._edit(name, occurrence, lambda step, anchor: (*_as_steps(steps, anchor), step))

    def insert_after(self, name: str, steps: Steps, occurrence: int | None = None) -> Pipeline:
        """Insert steps after a pass, at its level of nesting."""
        return self._edit(name, occurrence, lambda step, anchor: (step, *_as_steps(steps, anchor)))

    def replace(self, name: str, steps: Steps, occurrence: int | None = None) -> Pipeline:
        """Replace a pass by steps."""
        return self._edit(name, occurrence, lambda step, anchor: _as_steps(steps, anchor))

    def remove(self, name: str, occurrence: int | None = None) -> Pipeline:
        """Remove a pass."""
        return self._edit(name, occurrence, lambda step, anchor: ())

    def remove_all(self, name: str) -> Pipeline:
        """Remove a pass wherever it occurs, if it does."""
        for _ in range(self.names().count(name)):
            self.remove(name, occurrence=0)
        return self

    def for_target(self, target: str) -> Pipeline:
        """Set the option `target` of every pass that has it."""

        def rebuild(steps: tuple[Step, ...]) -> tuple[Step, ...]:
            return tuple(
                Nested(step.anchor, rebuild(step.steps))
                if isinstance(step, Nested)
                else dataclasses.replace(step, target=target)  # type: ignore[type-var]
                if isinstance(step, Pass) and hasattr(step, "target")
                else step
                for step in steps
            )

        self.steps = rebuild(self.steps)
        return self

    def _edit(self, name: str, occurrence: int | None, change: Callable[[Step, str], tuple[Step, ...]]) -> Pipeline:
        wanted = self._require(name, occurrence)
        seen = -1

        def rebuild(steps: tuple[Step, ...], anchor: str) -> tuple[Step, ...]:
            nonlocal seen
            rebuilt: list[Step] = []
            for step in steps:
                if isinstance(step, Nested):
                    inner = rebuild(step.steps, step.anchor)
                    rebuilt += [Nested(step.anchor, inner)] if inner else []
                    continue
                seen += step.name == name
                is_wanted = step.name == name and seen == wanted
                rebuilt += change(step, anchor) if is_wanted else [step]
            return tuple(rebuilt)

        self.steps = rebuild(self.steps, ROOT_ANCHOR)
        return self

    def _require(self, name: str, occurrence: int | None) -> int:
        count = self.names().count(name)
        if not count:
            raise PipelineError(_no_such_step(name, self.names()))
        if occurrence is None and count > 1:
            raise PipelineError(f"pass '{name}' occurs {count} times: select one with occurrence=0 to {count - 1}")
        if occurrence is not None and not 0 <= occurrence < count:
            raise PipelineError(f"pass '{name}' occurs {count} times, there is no occurrence {occurrence}")
        return occurrence or 0


def _no_such_step(name: str, names: list[str]) -> str:
    near = nearest_name(name, names)
    hint = f"did you mean '{near}'?" if near else f"it has: {', '.join(names) or 'no passes'}"
    return f"the pipeline has no pass '{name}'; {hint}"


def _leaves(steps: tuple[Step, ...]) -> Iterator[Pass | UpstreamPass]:
    for step in steps:
        if isinstance(step, Nested):
            yield from _leaves(step.steps)
        else:
            yield step


def _is_too_deep(step: Nested) -> bool:
    level: list[Step] = [step]
    for _ in range(MAX_NESTING):
        level = [inner for step in level if isinstance(step, Nested) for inner in step.steps]
    return any(isinstance(step, Nested) for step in level)


def _as_steps(steps: Steps, anchor: str, depth: int = 0) -> tuple[Step, ...]:
    if depth > MAX_NESTING or (isinstance(steps, Nested) and _is_too_deep(steps)):
        raise PipelineError(f"a pipeline is nested at most {MAX_NESTING} deep")
    if isinstance(steps, str):
        return parse_steps(steps, anchor)
    if isinstance(steps, (Pass, UpstreamPass, Nested)):
        complaint = misplaced(steps, anchor)
        if complaint:
            raise PipelineError(complaint)
        # A copy, so that instruments can tell two occurrences of one pass object apart.
        return (copy.copy(steps),)
    if isinstance(steps, type) or not isinstance(steps, Iterable):
        raise TypeError(f"expected passes or text for a pipeline, got {steps!r}")
    return tuple(step for member in steps for step in _as_steps(member, anchor, depth + 1))
