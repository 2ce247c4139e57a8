"""Rules of GPUs, which schedule a whole function or some of its blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, TypeVar

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import PrimView
from mirlo.passes.rule_choices import ChoiceValues
from mirlo.passes.rules import ANY, SCHEDULE, Decline, Rule, deciding, decline
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel, whole_group
from mirlo.passes.schedule.buffers import BufferFunction, TensorBuffers
from mirlo.passes.schedule.choices import WANTED_PARTS, parts_of, set_parts
from mirlo.passes.schedule.parts import PartPlan, part_rules, plan_parts
from mirlo.passes.schedule.primitives.group_plan import record_trace, trace_of_stages
from mirlo.passes.targets import chain
from mirlo.targets.gpu.schedule.stage import LANES, StagePlan

if TYPE_CHECKING:
    from mirlo.passes.schedule.kernel import Kernel, ScheduleContext

StagePlanner = Callable[Concatenate[BlockGroup[LaneModel], "ScheduleContext", ...], StagePlan | Decline]
"""Plans consecutive blocks of a function; further arguments are what a caller may choose."""
Planning = TypeVar("Planning", bound=StagePlanner)


def stage_rule(target: str, priority: int = 0) -> Callable[[Planning], Planning]:
    """Register a planner of blocks as a rule, for whole functions and for parts of them."""

    def register(planner: Planning) -> Planning:
        @wraps(planner)
        def rule(kernel: Kernel, context: ScheduleContext, **chosen: Any) -> ir.OpView | Decline:
            if kernel.view.others:
                return decline("has operations other than blocks", first=kernel.view.others[0].name)
            group, wanted = whole_group(kernel.view, LANES), parts_of(kernel.view.op, WANTED_PARTS)
            if wanted:
                own = part_rules(chain(context.target)[:-1])
                planned = plan_parts(kernel, group, wanted, own, partial(_plan_by, context=context))
                if isinstance(planned, Decline):
                    return planned
                plans, parts = planned
                set_parts(kernel.view.op, parts)
                return _build(kernel.view, plans)
            plan = planner(group, context, **chosen)
            if isinstance(plan, Decline):
                return plan
            trace = trace_of_stages(plan.stages)
            result = _build(kernel.view, [plan], plan.chosen)
            if trace is not None:
                record_trace(result, trace)
            return result

        SCHEDULE.add(ANY, target, rule, priority, planner=planner)
        return planner

    return register


def _plan_by(
    rule: Rule, group: BlockGroup[LaneModel], choices: ChoiceValues, context: ScheduleContext
) -> StagePlan | Decline:
    """Plan blocks by a rule, with the choices that are the rule's."""
    assert rule.planner is not None, "a rule of parts"
    plan: StagePlan | Decline = deciding(rule.planner)(group, context, **rule.arguments.bind(choices))
    return plan


def _build(view: PrimView, plans: Sequence[PartPlan], choices: ChoiceValues | None = None) -> ir.OpView:
    """Build the buffer form of a prim function from the plans of its blocks, in order."""
    buffers = BufferFunction(view, stack_limit=0)
    own = [plan.facts for plan in reversed(plans) if isinstance(plan, StagePlan)]
    facts = {name: value for each in own for name, value in each.items()}

    def emit() -> None:
        memory = TensorBuffers(buffers)
        for plan in plans:
            plan.emit(memory)

    names = ", ".join(plan.name for plan in plans)
    return buffers.build(emit, {"rule": "stages", "stages": names, **facts}, choices)
