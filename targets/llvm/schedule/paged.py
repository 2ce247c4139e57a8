"""Attention of one new token of each sequence to rows of caches in pages: rows are read in place.

Pages hold the rows of all heads, so a page is computed for all heads before the next one: memory is read in order.
Scores of all keys are stored, as in `blocked`. Pages that are not full are copied first, with zeros after the last
row. For more tokens, all rows are copied, and the rest is that of `blocked`. Both are schedules of primitives.
"""

from __future__ import annotations

from dataclasses import replace

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import static_dim
from mirlo.dialects.core.index_expr import loop_index
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.view import BlockView
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.buffers import ScheduleFacts
from mirlo.passes.schedule.kernel import Kernel, ScheduleContext
from mirlo.passes.schedule.primitives.page_blocks import reads_pages
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.blocked import BlockedPlan, arrange_blocks, plan_blocked
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import BlockOfRows


def schedule_pages(kernel: Kernel, context: ScheduleContext, machine: Machine) -> ir.OpView | Decline:
    """Schedule a function as attention to rows of caches in pages."""
    threads = context.options.get("threads", 1)
    s = Schedule(kernel.view)
    plan = _plan_copied(s, machine, threads)
    if isinstance(plan, Decline):
        return plan
    tokens = plan.tokens
    facts: ScheduleFacts = {"rule": "paged", **plan.describe()}
    if tokens is None:
        pages = _arrange_pages(Schedule(kernel.view), plan, machine, threads)
        if isinstance(pages, Schedule):
            return pages.emit({**facts, "one_row": True})
        return s.emit({**facts, "copied": str(pages)})
    count = len(s.trace.calls)
    one = s.specialize(str(tokens), 1)
    single = _plan_copied(Schedule(one.view), machine, threads)
    pages = single if isinstance(single, Decline) else _arrange_pages(one, single, machine, threads)
    if isinstance(pages, Decline):
        s.undo(count)
        return s.emit({**facts, "copied": str(pages)})
    return s.emit({**facts, "one_row": True})


def _plan_copied(s: Schedule, machine: Machine, threads: int) -> BlockedPlan | Decline:
    """Plan the copies of rows out of pages, and attention to them."""
    paged = [block for block in s.view.blocks if reads_pages(block)]
    if not paged:
        return decline("no block reads rows out of pages")
    names = [s.block_of(block) for block in paged]
    for name, block in zip(names, paged, strict=True):
        s.copy_pages(name, _lanes(block, machine))
    blocks = tuple(block for block in s.view.blocks if block not in paged)
    return plan_blocked(s, BlockGroup(blocks, frozenset(s.view.returned), machine), threads)


def _lanes(block: BlockView, machine: Machine) -> int:
    """Return the lanes of the vectors in which rows of a cache are copied."""
    return machine.lanes(element_bytes(block.outputs[0].element_type))


def _arrange_pages(s: Schedule, plan: BlockedPlan, machine: Machine, threads: int) -> Schedule | Decline:
    """Arrange attention of one token over pages where they are, from the plan over copied rows."""
    if not plan.slots:
        return decline("all sizes are known")
    first, last = plan.stages.first.plan, plan.stages.last.plan
    reads = {block.outputs[0].value: block for block in s.view.blocks if reads_pages(block)}
    keys, values = (reads.get(each.roles.columns.access.value) for each in (first, last))
    if keys is None or values is None:
        return decline("keys or values are not rows of pages")
    refusal = _require_pages(plan, keys, values)
    if refusal is not None:
        return refusal
    rows, heads, _ = map(static_dim, keys.inputs[1].shape[1:])
    for value, block in reads.items():
        if value not in (keys.outputs[0].value, values.outputs[0].value):
            s.copy_pages(s.block_of(block), _lanes(block, machine))
    # Where a head has one row, no tile has the rows of several heads. The rows of a page are blocks of K of values.
    page = BlockOfRows(is_counted=False, is_one=plan.shared.extent == 1)
    nests = arrange_blocks(s, plan.stages, replace(page, columns=rows), replace(page, depth=rows))
    if isinstance(nests, Decline):
        return nests
    count = next(count for count in range(1, heads + 1) if heads % count == 0 and (count >= threads or count == heads))
    nests.block_rows(heads // count * static_dim(plan.shared.extent), plan.slots, lanes=_lanes(keys, machine))
    return s


def _require_pages(plan: BlockedPlan, keys: BlockView, values: BlockView) -> Decline | None:
    """Return why the products cannot go over the pages of these blocks."""
    first, last = plan.stages.first.plan, plan.stages.last.plan
    if plan.is_hidden or any(each.packing.packs_panels or each.tile.group is not None for each in (first, last)):
        return decline("keys or values are packed, or a mask leaves some of them out")
    if any(len(each.loops.reduce) != 1 or each.loops.unrolled for each in (first, last)):
        return decline("products have several axes, or unrolled ones")
    _, cache, table = keys.inputs
    sequences, heads = table.shape[0], cache.shape[2]
    if D.product([extent for _, extent in plan.shared.loops]) != sequences * heads:
        return decline("the rows of a head are several loops", loops=len(plan.shared.loops))
    for contraction, read, axis, size_axis in (
        (first, keys, first.roles.lane_axis, first.loops.reduce[0]),
        (last, values, last.loops.reduce[0], last.roles.lane_axis),
    ):
        if axis.extent != plan.shared.width or read.inputs[1].shape[1:3] != cache.shape[1:3]:
            return decline("a product does not go over the rows of pages")
        if tuple(contraction.roles.columns.access.dims[2:]) != (loop_index(axis.id), loop_index(size_axis.id)):
            return decline("rows are read in another order")
        row_axis = contraction.tile.row_axis
        if row_axis is not None and plan.shared.extent not in (1, row_axis.extent):
            return decline("the rows of a head are not one loop")
    return None
