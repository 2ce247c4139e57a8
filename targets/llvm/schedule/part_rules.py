"""Rules of the target that schedule a whole prim function, or consecutive blocks of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mirlo.dialects.tir.view import BlockView, PrimView
from mirlo.passes.rules import Decline, TuningSpace, decline
from mirlo.passes.schedule import parts
from mirlo.passes.schedule.blocks.contraction.analysis import is_product
from mirlo.passes.schedule.blocks.group import BlockGroup, unfit, whole_group
from mirlo.passes.schedule.parts import FunctionPlanner
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
    machine = find_machine(context.options.get("machine"))
    return whole_group(view, machine, context.options.get("threads", 1), context)


def require_two_contractions(group: BlockGroup[Machine]) -> Decline | None:
    """Return why blocks are not attention if they have another number of contractions than two."""
    contractions = sum(is_product(block) for block in group.blocks)
    return None if contractions == 2 else decline("not two contractions", contractions=contractions)


def may_read_pages(block: BlockView) -> bool:
    """Return whether a block has the operands of one that reads rows of a cache in pages."""
    return not block.is_reduction and block.rank == 4 and len(block.inputs) == 3 and len(block.outputs) == 1


def part_rule(priority: int, space: TuningSpace | None = None) -> Callable[[FunctionPlanner], FunctionPlanner]:
    """Register a planner of blocks, `plan_NAME`, as the rule `NAME` of the target."""
    return parts.part_rule("llvm", function_group, priority, space)
