"""Rules that schedule a whole prim function or consecutive blocks of one: each has a planner of a group of blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from mirlo.dialects.bindings import ir
from mirlo.passes.rule_choices import ChoiceError, ChoiceValues
from mirlo.passes.rules import ANY, SCHEDULE, Decline, Rule, decline, schedule
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.choices import RulePart, check_choices, check_used
from mirlo.passes.schedule.kernel import Kernel
from mirlo.passes.schedule.primitives.group_plan import PrimitivesPlan, schedule_of
from mirlo.passes.schedule.primitives.rule_parts import ANY_RULE, PRIMITIVES_RULE, LoopPrimitives, find_blocks
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.targets import thread_limits

if TYPE_CHECKING:
    from mirlo.passes.schedule.kernel import Kernel, ScheduleContext


class BlocksPlan(Protocol):
    """A plan for consecutive blocks."""

    @property
    def name(self) -> str:
        """Return the name of the rule, or those of its stages."""

    def choices(self) -> ChoiceValues:
        """Return the choices with which the rule makes the plan again."""

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the loops at the insertion point."""


PartPlan = BlocksPlan | LoopPrimitives
"""What computes a part: the plan of a rule, or the loops that primitives arrange."""


def part_rules(targets: Sequence[str]) -> list[Rule]:
    """Return the rules of these targets that schedule parts of functions, in the order in which they are tried."""
    return [rule for rule in SCHEDULE.candidates(ANY, targets) if rule.planner is not None]


PlanByRule = Callable[[Rule, BlockGroup[Any], ChoiceValues], BlocksPlan | Decline]
"""Plans blocks by a rule, with choices that it declares."""


def plan_parts(
    kernel: Kernel, group: BlockGroup[Any], wanted: Sequence[RulePart], rules: Sequence[Rule], plan: PlanByRule
) -> tuple[list[PartPlan], list[RulePart]] | Decline:
    """Plan the blocks in the parts and by the rules that a caller names; return the parts with their choices."""
    plans: list[PartPlan] = []
    parts: list[RulePart] = []
    for position, part in enumerate(wanted):
        if part.rule == PRIMITIVES_RULE:
            assert kernel.parts is not None
            plans.append(LoopPrimitives(kernel.parts, position))
            parts.append(part)
            continue
        planned = _plan_part(group.part(*find_blocks(kernel.view, part.blocks)), part, rules, plan)
        if isinstance(planned, Decline):
            return planned
        rule, blocks_plan = planned
        choices = blocks_plan.choices()
        check_used(rule.name, rule.choices, part.choices, choices)
        plans.append(blocks_plan)
        parts.append(replace(part, rule=rule.name, choices=choices))
    return plans, parts


def _plan_part(
    group: BlockGroup[Any], part: RulePart, rules: Sequence[Rule], plan: PlanByRule
) -> tuple[Rule, BlocksPlan] | Decline:
    """Return the plan of a part, and the rule that made it."""
    names = list(dict.fromkeys(rule.name for rule in rules))
    if part.rule != ANY_RULE and part.rule not in names:
        raise ChoiceError(f"rule '{part.rule}' does not schedule parts of a function; these do: {', '.join(names)}")
    reasons: list[str] = []
    for rule in rules:
        if part.rule not in (ANY_RULE, rule.name):
            continue
        check_choices(rule.name, rule.choices, part.choices)
        planned = plan(rule, group, part.choices)
        if not isinstance(planned, Decline):
            return rule, planned
        reasons.append(f"'{rule.name}' declines blocks {', '.join(part.blocks)}: {planned}")
    return decline("; ".join(reasons))


SCALAR_NEST = "scalar_nest"
"""The name of the rule."""


def plan_scalars(group: BlockGroup[Any]) -> PrimitivesPlan:
    """Plan loops over scalars for any blocks."""
    s = schedule_of(group)
    arrange_scalars(s)
    return PrimitivesPlan(group, s, SCALAR_NEST, {})


@schedule(name=SCALAR_NEST, planner=plan_scalars)
def scalar_nest(kernel: Kernel, context: ScheduleContext) -> ir.OpView | Decline:
    """Schedule loops in the order of the axes, one element at a time."""
    s = Schedule(kernel.view)
    if thread_limits(context.target) is not None and any(s.kinds(block) for block in s.blocks()):
        return decline("one thread of a GPU would run all iterations", target=context.target)
    arrange_scalars(s)
    return s.emit({"rule": SCALAR_NEST})


def arrange_scalars(s: Schedule) -> None:
    """Sum up each result of a reduction in a register, in the innermost loops."""
    for block in s.blocks():
        kinds = s.kinds(block)
        over = [loop for loop, kind in kinds.items() if kind == "reduce"]
        if not over:
            continue
        order = [*(loop for loop in kinds if loop not in over), *over]
        if order != [*kinds]:
            s.reorder(*order)
        s.accumulate(block, over[0])
