"""Attention of one new token of each sequence to rows of caches in pages: rows are read in place.

Pages hold the rows of all heads, so a page is computed for all heads before the next one: memory is read in order.
Scores of all keys are stored, as in `blocked`. Pages that are not full are copied first, with zeros after the last
row. For more tokens, all rows are copied, and `blocked` computes the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, static_dim
from mirlo.dialects.core.index_expr import loop_index
from mirlo.dialects.core.types import dims_of
from mirlo.dialects.core.value import compare, index
from mirlo.dialects.tir.buffers import UNPROVEN
from mirlo.dialects.tir.specialize import with_dims
from mirlo.dialects.tir.view import BlockView, PrimView
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.buffers import BufferFunction, ScheduleFacts, TensorBuffers
from mirlo.passes.schedule.kernel import Kernel, ScheduleContext
from mirlo.passes.schedule.loops import either
from mirlo.passes.schedule.primitives.group_plan import schedule_of
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.blocked import BlockedPlan, arrange_blocks, plan_blocked
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import BlockOfRows
from mirlo.targets.llvm.schedule.page_blocks import PagedPlan, PagedRead, copy_rows
from mirlo.targets.llvm.schedule.part_rules import may_read_pages

_MOST_OPERATIONS = 16
"""Most operations of a block that is compared with the expected computation."""


def match_paged_rows(block: BlockView) -> PagedRead | None:
    """Match a block of `paged_row`: a select of an element of a page, which a table has, and zero."""
    if not may_read_pages(block):
        return None
    lengths, cache, table = block.inputs
    shape = cache.shape
    if not cache.is_opaque or lengths.is_opaque or table.is_opaque or len(block.body_ops) > _MOST_OPERATIONS:
        return None
    if len(shape) != 4 or not all(isinstance(size, int) for size in shape[1:]):
        return None
    pages, rows, heads, size = shape
    (output,) = block.outputs
    if output.map != ir.AffineMap.get_identity(4) or len(table.shape) != 2:
        return None
    if output.shape != (table.shape[0], heads, table.shape[1] * rows, size):
        return None
    sequence, row = ir.AffineExpr.get_dim(0), ir.AffineExpr.get_dim(2)
    if lengths.map != ir.AffineMap.get(4, 0, [sequence]) or lengths.element_type != table.element_type:
        return None
    if table.map != ir.AffineMap.get(4, 0, [sequence, ir.AffineExpr.get_floor_div(row, rows)]):
        return None
    names = dict(zip([*block.index_arguments, *block.input_arguments], "bhtdlcp", strict=True))
    page, offset = f"minsi(maxsi(index_cast(p), 0), {pages - 1})", f"subi(t, muli(floordivsi(t, {rows}), {rows}))"
    expected = f"select(cmpi:2(t, index_cast(l)), extract(c, {page}, {offset}, h, d), 0)"
    if _text(block.yielded[0], names) != expected:
        return None
    return PagedRead(block, cache.value, table.value, lengths.value)


def _text(value: ir.Value, names: Mapping[ir.Value, str]) -> str:
    """Return a computation as text: numbers, names of what it begins with, operations without their dialects."""
    if value in names:
        return names[value]
    op = value.owner.operation
    if op.name == "tir.size":
        return str(op.opview.dim)
    if op.name == "arith.constant":
        return f"{op.attributes['value'].value:g}"
    predicate = f":{op.attributes['predicate'].value}" if "predicate" in op.attributes else ""
    return f"{op.name.partition('.')[2]}{predicate}({', '.join(_text(each, names) for each in op.operands)})"


def plan_pages(plan: BlockedPlan, reads: Mapping[ir.Value, PagedRead], threads: int) -> PagedPlan | Decline:
    """Plan attention of one token over pages, from the plan over copied rows."""
    first, last = plan.stages.first.plan, plan.stages.last.plan
    keys, values = (reads.get(each.roles.columns.access.value) for each in (first, last))
    if keys is None or values is None:
        return decline("keys or values are not rows of pages")
    if plan.is_hidden or any(each.packing.packs_panels or each.tile.group is not None for each in (first, last)):
        return decline("keys or values are packed, or a mask leaves some of them out")
    if any(len(each.loops.reduce) != 1 or each.loops.unrolled for each in (first, last)):
        return decline("products have several axes, or unrolled ones")
    _, rows, heads, _ = keys.shape
    sequences = dims_of(keys.table.type)[0]
    if D.product([extent for _, extent in plan.shared.loops]) != sequences * heads:
        return decline("the rows of a head are several loops", loops=len(plan.shared.loops))
    for contraction, read, axis, size_axis in (
        (first, keys, first.roles.lane_axis, first.loops.reduce[0]),
        (last, values, last.loops.reduce[0], last.roles.lane_axis),
    ):
        if axis.extent != plan.shared.width or read.shape[1:3] != (rows, heads):
            return decline("a product does not go over the rows of pages")
        if tuple(contraction.roles.columns.access.dims[2:]) != (loop_index(axis.id), loop_index(size_axis.id)):
            return decline("rows are read in another order")
        row_axis = contraction.tile.row_axis
        if row_axis is not None and plan.shared.extent not in (1, row_axis.extent):
            return decline("the rows of a head are not one loop")
    # Where a head has one row, no tile has the rows of several heads. The rows of a page are blocks of K of values.
    page = BlockOfRows(is_counted=False, is_one=plan.shared.extent == 1)
    nests = arrange_blocks(
        schedule_of(plan.stages.group), plan.stages, replace(page, columns=rows), replace(page, depth=rows)
    )
    if isinstance(nests, Decline):
        return nests
    count = next(count for count in range(1, heads + 1) if heads % count == 0 and (count >= threads or count == heads))
    nests.block_rows(heads // count * static_dim(plan.shared.extent), plan.slots)
    return PagedPlan(plan, nests, keys, values, count)


def emit_by_rows(
    buffers: BufferFunction,
    view: PrimView,
    rows: Dim,
    one: Callable[[TensorBuffers], None],
    more: Callable[[TensorBuffers], None],
) -> None:
    """Emit a plan for one row, of a copy of the function, and that for another number of them, which is dynamic."""
    memory, whole = TensorBuffers(buffers), buffers.view
    outside = zip((*whole.arguments, *whole.returned), (*view.arguments, *view.returned), strict=True)
    for value, own in outside:
        memory.place(own, buffers.buffer(value))
    is_one = compare("eq", index(rows), index(1))
    either(is_one, lambda: one(memory), lambda: more(TensorBuffers(buffers)))


@dataclass(frozen=True)
class _CopiedPlan:
    """A plan of attention to copies of rows."""

    view: PrimView
    plan: BlockedPlan
    reads: tuple[PagedRead, ...]
    machine: Machine

    def emit(self, memory: TensorBuffers, share: Dim = 1) -> None:
        """Emit the copies and the attention; `share` is as in `copy_rows`."""
        for read in self.reads:
            copy_rows(memory, read, self.machine, share)
        self.plan.emit(memory)

    def in_pages(self, threads: int) -> PagedPlan | Decline:
        """Plan to read keys and values where they are."""
        if not self.plan.slots:
            return decline("all sizes are known")
        return plan_pages(self.plan, {read.value: read for read in self.reads}, threads)

    def emit_pages(self, pages: PagedPlan, memory: TensorBuffers) -> None:
        """Emit attention to rows where they are, and copies of their scales only."""
        for read in self.reads:
            if read not in (pages.keys, pages.values):
                copy_rows(memory, read, self.machine)
        pages.emit(memory)


def schedule_pages(kernel: Kernel, context: ScheduleContext, machine: Machine) -> ir.OpView | Decline:
    """Schedule a function as attention to rows of caches in pages."""
    function = _build_paged(kernel, context, machine)
    if not isinstance(function, Decline):
        function.operation.attributes[UNPROVEN] = ir.StringAttr.get(_WHY_IN_BOUNDS)
    return function


_WHY_IN_BOUNDS = "pages are clamped to the cache, and scores end at the lengths, which are clamped to the pages"


def _build_paged(kernel: Kernel, context: ScheduleContext, machine: Machine) -> ir.OpView | Decline:
    threads = context.options.get("threads", 1)
    plan = _plan_copied(kernel.view, machine, threads)
    if isinstance(plan, Decline):
        return plan
    length, buffers = plan.plan.tokens, BufferFunction(kernel.view)
    facts: ScheduleFacts = {"rule": "paged", **plan.plan.describe()}
    if length is None:
        return _build_known(plan, threads, buffers, facts)
    view = PrimView(with_dims(kernel.view.op, {str(length): 1}))
    try:
        single = _plan_copied(view, machine, threads)
        pages = single if isinstance(single, Decline) else single.in_pages(threads)
        if isinstance(pages, Decline) or isinstance(single, Decline):
            return buffers.build(lambda: plan.emit(TensorBuffers(buffers)), {**facts, "copied": str(pages)})
        one, more = partial(single.emit_pages, pages), partial(plan.emit, share=D.minimum(1, length // 2))
        emit = partial(emit_by_rows, buffers, view, length, one, more)
        return buffers.build(emit, {**facts, "one_row": True})
    finally:
        view.op.erase()


def _build_known(plan: _CopiedPlan, threads: int, buffers: BufferFunction, facts: ScheduleFacts) -> ir.OpView:
    """Build a function for a number of tokens that is known."""
    pages = plan.in_pages(threads)
    if isinstance(pages, Decline):
        return buffers.build(lambda: plan.emit(TensorBuffers(buffers)), {**facts, "copied": str(pages)})
    return buffers.build(lambda: plan.emit_pages(pages, TensorBuffers(buffers)), {**facts, "one_row": True})


def _plan_copied(view: PrimView, machine: Machine, threads: int) -> _CopiedPlan | Decline:
    """Plan the copies of rows out of pages, and attention to them."""
    reads = [read for block in view.blocks if (read := match_paged_rows(block)) is not None]
    if not reads:
        return decline("no block reads rows out of pages")
    own = [read.block for read in reads]
    blocks = tuple(block for block in view.blocks if block not in own)
    group = BlockGroup(blocks, frozenset(view.returned), machine)
    plan = plan_blocked(schedule_of(group), group, threads)
    return plan if isinstance(plan, Decline) else _CopiedPlan(view, plan, tuple(reads), machine)
