"""The group that rules of this folder start from: a whole prim function, and the machine with its tuned choices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.tir.view import PrimView
from mirlo.passes.rules import Decline
from mirlo.passes.schedule.blocks.group import BlockGroup, unfit
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.options import find_machine
from mirlo.targets.llvm.tuned_machine import tuned_machine

if TYPE_CHECKING:
    from mirlo.passes.schedule.schedule import Kernel, ScheduleContext


def function_group(kernel: Kernel, context: ScheduleContext) -> BlockGroup[Machine] | Decline:
    """Return all blocks of a prim function as one group."""
    view: PrimView = kernel.view
    refusal = unfit(view)
    if refusal is not None:
        return refusal
    machine = tuned_machine(view.op, find_machine(context.options.get("machine")))
    return BlockGroup(tuple(view.blocks), frozenset(view.returned), machine)
