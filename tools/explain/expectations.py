"""The target's expectations of a kernel: its time, and the choices that a rule compared."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import is_tensor_form, prim_functions
from mirlo.passes.figures import ComparedChoice, KernelExpectation
from mirlo.passes.instrumentation import Instrument
from mirlo.passes.pipeline_parser import Leaf
from mirlo.passes.rules import Rule
from mirlo.passes.schedule.schedule import ScheduleRecord
from mirlo.passes.schedule.tuned import ApplyTuning, name_of
from mirlo.passes.targets import CompileOptions, Target
from mirlo.runtime.records import dataclass


@dataclass
class UnscheduledModule(Instrument):
    """Keeps a copy of the module before weights are packed, at the point where choices are made for kernels."""

    module: ir.Operation | None = None

    def before_pass(self, step: Leaf, op: ir.OpView) -> None:
        if step.name == "schedule" and self.module is None:
            self.module = op.operation.clone().operation

    def after_pass(self, step: Leaf, op: ir.OpView) -> None:
        if isinstance(step, ApplyTuning) and not step.operators:
            self.module = op.operation.clone().operation

    def expectation(
        self, kernel: str, record: ScheduleRecord, tuned: Mapping[str, int], target: Target, options: CompileOptions
    ) -> KernelExpectation | None:
        """Return the target's expectation of a scheduled kernel, or None if it has none."""
        if self.module is None or (record.is_applied or record.is_given) and len(record.trace.calls) != 1:
            return None
        functions = {name_of(function): function for function in prim_functions(self.module)}
        function = functions.get(kernel)
        if function is None or not is_tensor_form(function):
            return None
        own = record.trace.calls[0].named if record.is_applied or record.is_given else record.choices
        chosen = own if tuned or record.is_given else {}
        values = {name: value for name, value in chosen.items() if isinstance(value, int)}
        expectation = _expectation(function, values, target, options)
        return expectation if expectation is not None and _is_of(record.rule, expectation.candidates) else None


def _is_of(rule: Rule, candidates: Collection[ComparedChoice]) -> bool:
    """Return whether a rule makes the choices of these candidates: another one may have taken the kernel."""
    names = {choice.name for choice in rule.choices}
    return all(names.issuperset(candidate.values) for candidate in candidates)


def _expectation(
    function: ir.OpView | ir.Operation, values: Mapping[str, int], target: Target, options: CompileOptions
) -> KernelExpectation | None:
    if target.has("expectation"):
        return target.expectation(function, values, options)
    own = target.expected(function, values, options)
    if own is None:
        return None
    return KernelExpectation(
        own, compared="choices", candidates=(ComparedChoice(values, own), *_ranked(function, target, options))
    )


def _ranked(function: ir.OpView | ir.Operation, target: Target, options: CompileOptions) -> Sequence[ComparedChoice]:
    """Return the choices that tuning may try, the fastest first as the target expects it."""
    points = target.space(function, options)
    times = [(target.expected(function, point, options), point) for point in points]
    candidates = [ComparedChoice(point, time) for time, point in times if time is not None]
    return sorted(candidates, key=lambda candidate: candidate.time)
