"""The rules of attention: what they require first; `blocked` and `paged` plan what meets that.

Few models have attention, and their plans are twenty modules: they are imported for kernels that may be attention.
"""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.passes.rules import Decline, decline, schedule
from mirlo.passes.schedule.kernel import Kernel, ScheduleContext
from mirlo.targets.llvm.choices import NO_BLOCK_CHOICES, BlockChoices
from mirlo.targets.llvm.schedule.part_rules import function_group, may_read_pages, require_two_contractions


@schedule(target="llvm", priority=96)
def paged(kernel: Kernel, context: ScheduleContext) -> ir.OpView | Decline:
    """Schedule attention to rows of caches in pages: of one token page by page, of more of them over copies."""
    group = function_group(kernel, context)
    if isinstance(group, Decline):
        return group
    if not any(may_read_pages(block) for block in group.blocks):
        return decline("no block reads rows out of pages")
    from mirlo.targets.llvm.schedule.paged import schedule_pages

    return schedule_pages(kernel, context, group.machine)


def _block_space(kernel: Kernel, context: ScheduleContext) -> list[dict[str, int]]:
    """Return the rows of a block that are worth a measurement."""
    group = function_group(kernel, context)
    if isinstance(group, Decline) or require_two_contractions(group) is not None:
        return []
    from mirlo.targets.llvm.schedule.blocked import block_space

    return block_space(kernel, context, group)


@schedule(target="llvm", priority=95, space=_block_space)
def blocked(kernel: Kernel, context: ScheduleContext, choices: BlockChoices = NO_BLOCK_CHOICES) -> ir.OpView | Decline:
    """Schedule two contractions with row operations between them (attention) a block of rows at a time."""
    group = function_group(kernel, context)
    if isinstance(group, Decline):
        return group
    refusal = require_two_contractions(group)
    if refusal is not None:
        return refusal
    from mirlo.targets.llvm.schedule.blocked import schedule_blocks

    return schedule_blocks(kernel, context, group, choices)
