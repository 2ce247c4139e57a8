"""Rules of the target that schedule a whole prim function, or consecutive blocks of one.

    @part_rule(priority=30)
    def plan_window(group: BlockGroup[Machine], choices: LoopChoices = NO_LOOP_CHOICES) -> PrimitivesPlan | Decline: ...

registers the rule `window`. It is tried for whole functions, and by the rule `stages` for consecutive blocks of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import BlockView, PrimView
from mirlo.passes.rule_choices import RuleError
from mirlo.passes.rules import Decline, TuningSpace, decline, schedule
from mirlo.passes.schedule.blocks.contraction.analysis import is_product
from mirlo.passes.schedule.blocks.group import BlockGroup, unfit, whole_group
from mirlo.passes.schedule.kernel import Kernel, ScheduleContext
from mirlo.passes.schedule.parts import BlocksPlan
from mirlo.runtime.callbacks import Expected, checked
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.options import find_machine

if TYPE_CHECKING:
    from mirlo.passes.schedule.kernel import Kernel, ScheduleContext


def function_group(kernel: Kernel, context: ScheduleContext) -> BlockGroup[Machine] | Decline:
    """Return all blocks of a prim function as one group."""
    view: PrimView = kernel.view
    refusal = unfit(view)
    if refusal is not None:
        return refusal
    return whole_group(view, find_machine(context.options.get("machine")), context.options.get("threads", 1))


def require_two_contractions(group: BlockGroup[Machine]) -> Decline | None:
    """Return why blocks are not attention if they have another number of contractions than two."""
    contractions = sum(is_product(block) for block in group.blocks)
    return None if contractions == 2 else decline("not two contractions", contractions=contractions)


def may_read_pages(block: BlockView) -> bool:
    """Return whether a block has the operands of one that reads rows of a cache in pages."""
    return not block.is_reduction and block.rank == 4 and len(block.inputs) == 3 and len(block.outputs) == 1


class RunPlan(BlocksPlan, Protocol):
    """A plan of as many blocks of a group as it accepts."""

    @property
    def block_count(self) -> int:
        """Return how many blocks it computes."""


class FunctionPlan(RunPlan, Protocol):
    """A plan that may be of a whole function."""

    def schedule(self) -> ir.OpView:
        """Replace a prim function, of which these are all blocks, by the loops."""


FunctionPlanner = TypeVar("FunctionPlanner", bound=Callable[..., FunctionPlan | Decline])
_PREFIX = "plan_"
_PLAN = Expected(
    "a plan, such as a PrimitivesPlan, or decline('why')",
    lambda value: isinstance(value, Decline) or hasattr(value, "block_count") and hasattr(value, "schedule"),
)


def part_rule(priority: int, space: TuningSpace | None = None) -> Callable[[FunctionPlanner], FunctionPlanner]:
    """Register a planner, `plan_NAME`, as the rule `NAME` for whole functions and for parts of them."""

    def register(planner: FunctionPlanner) -> FunctionPlanner:
        plan_checked = checked(planner, _PLAN, f"rule '{planner.__name__.removeprefix(_PREFIX)}'", RuleError)

        @wraps(planner)
        def rule(kernel: Kernel, context: ScheduleContext, **chosen: Any) -> ir.OpView | Decline:
            group = function_group(kernel, context)
            if isinstance(group, Decline):
                return group
            plan = plan_checked(group, **chosen)
            return plan if isinstance(plan, Decline) else plan.schedule()

        own = list(inspect.signature(planner).parameters.values())[1:]
        called = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in ("kernel", "context")]
        rule.__signature__ = inspect.Signature([*called, *own])  # type: ignore[attr-defined]
        name = planner.__name__.removeprefix(_PREFIX)
        schedule(target="llvm", priority=priority, name=name, space=space, planner=plan_checked)(rule)
        return planner

    return register
