"""The loops of a kernel after one of the passes between the primitives of its schedule and its code."""

from __future__ import annotations

from collections.abc import Mapping

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.tir.view import PrimView, prim_functions
from mirlo.passes.instrumentation import Instrument
from mirlo.passes.memory.inplace import annotate_inplace
from mirlo.passes.pipeline_parser import Leaf
from mirlo.passes.schedule.buffers import TARGET
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.tree import ScheduleError
from mirlo.passes.schedule.schedule import SchedulePrims, ScheduleRecord
from mirlo.passes.targets import rules_target
from mirlo.runtime.records import dataclass


@dataclass
class ScheduledFunction(Instrument):
    """Keeps a copy of the module of a prim function as the pass `schedule` finds it."""

    name: str
    module: ir.Operation | None = None
    target: str = ""
    """The target that the function is scheduled for."""

    def before_pass(self, step: Leaf, op: ir.OpView) -> None:
        if isinstance(step, SchedulePrims) and self.name in map(symbol_name, prim_functions(op)):
            self.module = op.operation.clone().operation
            self.target = rules_target(step.target, op)

    def loops_after(self, name: str, records: Mapping[str, ScheduleRecord | None]) -> str:
        """Return the loops of the function as text after a pass over them.

        `records` have the schedule of each kernel of the model; raise `ScheduleError` if primitives did not.
        """
        record = records.get(self.name)
        if record is None or record.is_applied or self.module is None:
            raise ScheduleError(self._without_loops(record, records))
        function = next(each for each in prim_functions(self.module) if symbol_name(each) == self.name)
        function.operation.attributes[TARGET] = ir.StringAttr.get(self.target)
        view = PrimView(function)
        annotate_inplace(view)
        return Schedule(view).replay(record.trace).after(name)

    def _without_loops(self, record: ScheduleRecord | None, records: Mapping[str, ScheduleRecord | None]) -> str:
        """Return why there are no loops to print, kernels that have some, and the command that prints this one."""
        if record is None:
            reason = "no schedule rule made it: an earlier pass or a code generator did"
        else:
            rules = list(
                dict.fromkeys(str(call.arguments[0]) for call in record.trace if call.primitive == "apply_rule")
            )
            some = ", ".join(f"'{rule}'" for rule in rules)
            reason = f"it is scheduled by {'rule' if len(rules) == 1 else 'rules'} {some}, not by primitives only"
        others = [each for each, other in records.items() if other is not None and not other.is_applied]
        return (
            f"kernel '{self.name}' has no loops after a pass: {reason}; kernels scheduled by primitives: "
            f"{', '.join(others) or 'none'}; for the IR of '{self.name}' after each pass leave --after out, or give "
            "it a schedule of primitives with --schedule"
        )
