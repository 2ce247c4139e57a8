"""Rules of GPUs, which schedule a whole function or some of its blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, TypeVar

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import PrimView
from mirlo.passes.rule_choices import ChoiceError, ChoiceValues
from mirlo.passes.rules import ANY, SCHEDULE, Decline, Rule, RuleFunction, deciding, decline
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel, whole_group
from mirlo.passes.schedule.buffers import BufferFunction, TensorBuffers
from mirlo.passes.schedule.choices import WANTED_PARTS, RulePart, check_choices, check_used, parts_of, set_parts
from mirlo.passes.schedule.primitives.group_plan import record_trace, trace_of_stages
from mirlo.passes.schedule.primitives.rule_parts import ANY_RULE, PRIMITIVES_RULE, LoopPrimitives, find_blocks
from mirlo.passes.targets import chain
from mirlo.targets.gpu.schedule.stage import LANES, PlannedBlocks, StagePlan

if TYPE_CHECKING:
    from mirlo.passes.schedule.kernel import Kernel, ScheduleContext

StagePlanner = Callable[Concatenate[BlockGroup[LaneModel], "ScheduleContext", ...], StagePlan | Decline]
"""Plans consecutive blocks of a function; further arguments are what a caller may choose."""
Planning = TypeVar("Planning", bound=StagePlanner)
_PLANNERS: dict[RuleFunction, StagePlanner] = {}
"""The planners of the rules that schedule parts of a function."""


def stage_rule(target: str, priority: int = 0) -> Callable[[Planning], Planning]:
    """Register a planner of blocks as a rule, for whole functions and for parts of them."""

    def register(planner: Planning) -> Planning:
        @wraps(planner)
        def rule(kernel: Kernel, context: ScheduleContext, **chosen: Any) -> ir.OpView | Decline:
            if kernel.view.others:
                return decline("has operations other than blocks", first=kernel.view.others[0].name)
            wanted = parts_of(kernel.view.op, WANTED_PARTS)
            if wanted:
                return _schedule_parts(kernel, context, wanted)
            plan = planner(whole_group(kernel.view, LANES), context, **chosen)
            if isinstance(plan, Decline):
                return plan
            words = trace_of_stages(plan.stages)
            result = _build(kernel.view, [plan], plan.choices)
            if words is not None:
                record_trace(result, words)
            return result

        _PLANNERS[rule] = planner
        SCHEDULE.add(ANY, target, rule, priority)
        return planner

    return register


def _schedule_parts(kernel: Kernel, context: ScheduleContext, wanted: Sequence[RulePart]) -> ir.OpView | Decline:
    """Schedule each part by the rule that the caller names, or by the first one that takes it."""
    rules = [rule for rule in SCHEDULE.candidates(ANY, chain(context.target)) if rule.function in _PLANNERS]
    whole = whole_group(kernel.view, LANES)
    plans: list[StagePlan] = []
    parts: list[RulePart] = []
    for position, part in enumerate(wanted):
        if part.rule == PRIMITIVES_RULE:
            assert kernel.parts is not None
            plans.append(StagePlan([LoopPrimitives(kernel.parts, position)]))
            parts.append(part)
            continue
        blocks = whole.part(*find_blocks(kernel.view, part.blocks))
        planned = _plan_part(blocks, part, rules, context)
        if isinstance(planned, Decline):
            return planned
        rule, plan = planned
        check_used(rule.name, rule.choices, part.choices, plan.choices)
        plans.append(plan)
        parts.append(replace(part, rule=rule.name, choices=plan.choices))
    set_parts(kernel.view.op, parts)
    return _build(kernel.view, plans)


def _plan_part(
    blocks: BlockGroup[LaneModel], part: RulePart, rules: Sequence[Rule], context: ScheduleContext
) -> tuple[Rule, StagePlan] | Decline:
    """Return the plan of a part, and the rule that made it."""
    names = list(dict.fromkeys(rule.name for rule in rules))
    if part.rule != ANY_RULE and part.rule not in names:
        raise ChoiceError(f"rule '{part.rule}' does not schedule parts of a function; these do: {', '.join(names)}")
    reasons: list[str] = []
    for rule in rules:
        if part.rule not in (ANY_RULE, rule.name):
            continue
        check_choices(rule.name, rule.choices, part.choices)
        plan = deciding(_PLANNERS[rule.function])(blocks, context, **rule.arguments.bind(part.choices))
        if not isinstance(plan, Decline):
            return rule, plan
        reasons.append(f"'{rule.name}' declines blocks {', '.join(part.blocks)}: {plan}")
    return decline("; ".join(reasons))


def _build(view: PrimView, plans: Sequence[StagePlan], choices: ChoiceValues | None = None) -> ir.OpView:
    """Build the buffer form of a prim function from what is planned for its blocks, in order."""
    buffers = BufferFunction(view, stack_limit=0)
    stages: list[PlannedBlocks] = [stage for plan in plans for stage in plan.stages]
    facts = {name: value for plan in reversed(plans) for name, value in plan.facts.items()}

    def emit() -> None:
        memory = TensorBuffers(buffers)
        for stage in stages:
            stage.emit(memory)

    names = ", ".join(stage.name for stage in stages)
    return buffers.build(emit, {"rule": "stages", "stages": names, **facts}, choices)
