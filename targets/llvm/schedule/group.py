"""The group that rules of this folder start from: a whole prim function, and the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from mirlo.dialects.bindings import func
from mirlo.dialects.tir.view import PrimView
from mirlo.passes.rule_choices import ChoiceValues
from mirlo.passes.rules import Decline
from mirlo.passes.schedule.blocks.evaluate import TensorBuffers
from mirlo.passes.schedule.blocks.group import BlockGroup, unfit, whole_group
from mirlo.passes.schedule.buffers import BufferFunction, ScheduleFacts
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
    return whole_group(view, find_machine(context.options.get("machine")))


class GroupPlan(Protocol):
    """How a rule computes a group of blocks."""

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the loops at the insertion point."""

    def describe(self) -> ScheduleFacts:
        """Return what `mirlo explain` prints."""

    def choices(self) -> ChoiceValues:
        """Return the choices with which the loops are made again."""


def schedule_group(
    kernel: Kernel, context: ScheduleContext, rule: str, planner: Callable[[BlockGroup[Machine]], GroupPlan | Decline]
) -> func.FuncOp | Decline:
    """Schedule all blocks of a prim function by one plan."""
    group = function_group(kernel, context)
    if isinstance(group, Decline):
        return group
    plan = planner(group)
    if isinstance(plan, Decline):
        return plan
    buffers = BufferFunction(kernel.view)
    return buffers.build(lambda: plan.emit(TensorBuffers(buffers)), {"rule": rule, **plan.describe()}, plan.choices())
