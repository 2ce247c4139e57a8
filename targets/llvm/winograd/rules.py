"""The schedule rules of the transforms, which are recognized by the names of their blocks first.

`schedule.py` compares a block with the transform, and arranges its loops; it is imported for functions of that name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.passes.rules import Decline, decline, schedule
from mirlo.targets.llvm.schedule.part_rules import function_group
from mirlo.targets.llvm.winograd import GRADIENT_BLOCK, INPUT_BLOCK, OUTPUT_BLOCK

if TYPE_CHECKING:
    from mirlo.dialects.bindings import ir
    from mirlo.passes.schedule.kernel import Kernel, ScheduleContext


@schedule(target="llvm", priority=70)
def winograd_input(kernel: Kernel, context: ScheduleContext) -> Decline | ir.OpView:
    """Schedule the input transform: tiles of the image, a vector of channels at a time."""
    other = _other_block(kernel, context, INPUT_BLOCK)
    if other is not None:
        return other
    from mirlo.targets.llvm.winograd.schedule import schedule_input

    return schedule_input(kernel, context)


@schedule(target="llvm", priority=70)
def winograd_gradient(kernel: Kernel, context: ScheduleContext) -> Decline | ir.OpView:
    """Schedule the transposed output transform: tiles of a gradient, a vector of channels at a time."""
    other = _other_block(kernel, context, GRADIENT_BLOCK)
    if other is not None:
        return other
    from mirlo.targets.llvm.winograd.schedule import schedule_gradient

    return schedule_gradient(kernel, context)


@schedule(target="llvm", priority=70)
def winograd_output(kernel: Kernel, context: ScheduleContext) -> Decline | ir.OpView:
    """Schedule the output transform and its epilogue, tile by tile."""
    other = _other_block(kernel, context, OUTPUT_BLOCK)
    if other is not None:
        return other
    from mirlo.targets.llvm.winograd.schedule import schedule_output

    return schedule_output(kernel, context)


def _other_block(kernel: Kernel, context: ScheduleContext, name: str) -> Decline | None:
    """Decline a function whose first block has another name."""
    group = function_group(kernel, context)
    if isinstance(group, Decline):
        return group
    block = group.blocks[0]
    return None if block.name == name else decline("the first block is not a Winograd transform", block=block.name)
