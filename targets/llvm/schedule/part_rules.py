"""Rules that schedule a whole prim function, or consecutive blocks of one: planners of a group of blocks.

    @part_rule(priority=30)
    def plan_window(group: BlockGroup[Machine], choices: LoopChoices = NO_LOOP_CHOICES) -> PrimitivesPlan | Decline: ...

registers the rule `window`. It is tried for whole functions, and by the rule `stages` for runs of their blocks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol, TypeVar

from mirlo.dialects.bindings import ir
from mirlo.passes.rule_choices import ChoiceValues
from mirlo.passes.rules import ANY, SCHEDULE, Decline, Rule, RuleFunction, TuningSpace, schedule
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.kernel import Kernel, ScheduleContext
from mirlo.targets.llvm.schedule.group import function_group


class BlocksPlan(Protocol):
    """How consecutive blocks are computed."""

    @property
    def name(self) -> str:
        """Return the name of the rule."""

    @property
    def block_count(self) -> int:
        """Return how many blocks it computes."""

    def choices(self) -> ChoiceValues:
        """Return the choices with which the plan is made again."""

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the loops at the insertion point."""


class FunctionPlan(BlocksPlan, Protocol):
    """A plan that may be of a whole function."""

    def schedule(self) -> ir.OpView:
        """Replace a prim function, of which these are all blocks, by the loops."""


Planner = Callable[..., BlocksPlan | Decline]
"""Plans a group of blocks; further arguments are what a caller may choose."""
FunctionPlanner = TypeVar("FunctionPlanner", bound=Callable[..., FunctionPlan | Decline])
Registered = TypeVar("Registered", bound=RuleFunction)
_PLANNERS: dict[RuleFunction, Planner] = {}
"""The planners of the rules that schedule parts of a function."""
_PREFIX = "plan_"


def planned_by(planner: Planner) -> Callable[[Registered], Registered]:
    """Register a rule's planner for parts of functions, with the same choices."""

    def register(function: Registered) -> Registered:
        _PLANNERS[function] = planner
        return function

    return register


def part_rules() -> dict[str, tuple[Rule, Planner]]:
    """Return the rules that schedule parts of functions by name, in the order in which they are tried."""
    rules = [rule for rule in SCHEDULE.candidates(ANY, ("llvm",)) if rule.function in _PLANNERS]
    return {rule.name: (rule, _PLANNERS[rule.function]) for rule in rules}


def part_rule(priority: int, space: TuningSpace | None = None) -> Callable[[FunctionPlanner], FunctionPlanner]:
    """Register a planner, `plan_NAME`, as the rule `NAME` for whole functions and for parts of them."""

    def register(planner: FunctionPlanner) -> FunctionPlanner:
        @planned_by(planner)
        @wraps(planner)
        def rule(kernel: Kernel, context: ScheduleContext, **chosen: Any) -> ir.OpView | Decline:
            group = function_group(kernel, context)
            if isinstance(group, Decline):
                return group
            plan = planner(group, **chosen)
            return plan if isinstance(plan, Decline) else plan.schedule()

        own = list(inspect.signature(planner).parameters.values())[1:]
        called = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in ("kernel", "context")]
        rule.__signature__ = inspect.Signature([*called, *own])  # type: ignore[attr-defined]
        schedule(target="llvm", priority=priority, name=planner.__name__.removeprefix(_PREFIX), space=space)(rule)
        return planner

    return register
