"""The group that rules of this folder start from: a whole prim function, and the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.tir.view import PrimView
from mirlo.passes.rules import Decline
from mirlo.passes.schedule.blocks.group import BlockGroup, unfit, whole_group
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
