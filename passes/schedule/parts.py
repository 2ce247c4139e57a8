"""Rules that schedule a whole prim function or consecutive blocks of one: each has a planner of a group of blocks.

    @part_rule("llvm", function_group, priority=30)
    def plan_window(group: BlockGroup[Machine], choices: LoopChoices = NO_LOOP_CHOICES) -> PrimitivesPlan | Decline: ...

registers the rule `window`. It is tried for whole functions, and by the rule `stages` for consecutive blocks of them.
`mirlo.extend.schedules` has the decorator for target `llvm`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mirlo.dialects.bindings import ir
from mirlo.passes.rule_choices import ChoiceError, ChoiceValues, RuleError
from mirlo.passes.rules import ANY, SCHEDULE, Decline, Rule, TuningSpace, deciding, decline, schedule
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.choices import RulePart, check_choices, check_used
from mirlo.passes.schedule.kernel import Kernel
from mirlo.passes.schedule.primitives.group_plan import PrimitivesPlan, schedule_of
from mirlo.passes.schedule.primitives.rule_parts import ANY_RULE, PRIMITIVES_RULE, LoopPrimitives, find_blocks
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.targets import thread_limits
from mirlo.runtime.callbacks import Expected, checked

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


class FunctionPlan(BlocksPlan, Protocol):
    """A plan that may be of a whole function."""

    @property
    def block_count(self) -> int:
        """Return how many blocks it computes."""

    def schedule(self) -> ir.OpView:
        """Replace a prim function, of which these are all blocks, by the loops."""


FunctionPlanner = TypeVar("FunctionPlanner", bound=Callable[..., FunctionPlan | Decline])
GroupOfFunction = Callable[["Kernel", "ScheduleContext"], BlockGroup[Any] | Decline]
"""Returns all blocks of a prim function as one group, for the planners of a target, or declines the function."""
_PREFIX = "plan_"
_PLAN = Expected(
    "a plan, such as a PrimitivesPlan, or decline('why')",
    lambda value: isinstance(value, Decline) or hasattr(value, "block_count") and hasattr(value, "schedule"),
)


def part_rule(
    target: str, group: GroupOfFunction, priority: int, space: TuningSpace | None = None
) -> Callable[[FunctionPlanner], FunctionPlanner]:
    """Register a planner, `NAME` or `plan_NAME`, as the rule `NAME` for whole functions and for parts of them.

    Its arguments after the group are what a caller may choose; `group.context` is the environment of the compilation.
    """

    def register(planner: FunctionPlanner) -> FunctionPlanner:
        name = planner.__name__.removeprefix(_PREFIX)
        plan_checked = checked(planner, _PLAN, f"rule '{name}'", RuleError)

        @wraps(planner)
        def rule(kernel: Kernel, context: ScheduleContext, **chosen: Any) -> ir.OpView | Decline:
            whole = group(kernel, context)
            if isinstance(whole, Decline):
                return whole
            plan = plan_checked(whole, **chosen)
            return plan if isinstance(plan, Decline) else plan.schedule()

        own = list(inspect.signature(planner).parameters.values())[1:]
        called = [inspect.Parameter(each, inspect.Parameter.POSITIONAL_ONLY) for each in ("kernel", "context")]
        rule.__signature__ = inspect.Signature([*called, *own])  # type: ignore[attr-defined]
        schedule(target=target, priority=priority, name=name, space=space, planner=plan_checked)(rule)
        return planner

    return register


def plan_by(rule: Rule, group: BlockGroup[Any], choices: ChoiceValues) -> FunctionPlan | Decline:
    """Plan blocks by a rule, with the choices that are the rule's."""
    assert rule.planner is not None, "a rule of parts"
    plan: FunctionPlan | Decline = deciding(rule.planner)(group, **rule.arguments.bind(choices))
    return plan


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
