"""Two contractions with row operations between them, a block of rows at a time: attention.

The second contraction reads the result of the first row by row, after reductions of each row. So all three are
computed for a block of rows before the next block: scores and weights of one block stay in the cache. The loops
outside of the blocks, over heads and batches, are shared; threads divide them, or the blocks if there are no such
loops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import lcm, prod

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, static_dim
from mirlo.dialects.core.types import dims_of
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.specialize import with_dims
from mirlo.dialects.tir.view import BlockView, PrimView
from mirlo.passes.rule_choices import choice_values, tried_values, tuning_point
from mirlo.passes.rules import Decline, deciding, decline
from mirlo.passes.schedule.blocks.contraction.analysis import TensorAccess
from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis, row_major
from mirlo.passes.schedule.blocks.find_attention import find_attention
from mirlo.passes.schedule.blocks.group import BlockGroup, whole_group
from mirlo.passes.schedule.buffers import BufferFunction, ScheduleFacts, TensorBuffers
from mirlo.passes.schedule.kernel import Kernel, ScheduleContext
from mirlo.passes.schedule.primitives.group_plan import schedule_of
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.tree import ScheduleError
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.choices import NO_BLOCK_CHOICES, BlockChoices
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction import VectorContractionPlan, plan_tiles
from mirlo.targets.llvm.schedule.contraction.tiled import arrange_contraction
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import BlockOfRows, TiledContraction
from mirlo.targets.llvm.schedule.cost import (
    MAX_SCORES_L2,
    MIN_MASKED_ROWS,
    MIN_ROW_BLOCKS,
    MIN_TILES_PER_BLOCK,
    ROWS_TO_PACK_FOR,
)
from mirlo.targets.llvm.schedule.part_rules import require_two_contractions
from mirlo.targets.llvm.schedule.row_blocks import (
    AttentionLoops,
    AttentionStages,
    BlockedPlan,
    ContractionNest,
    RowBlockContraction,
    emit_by_rows,
)
from mirlo.targets.llvm.schedule.rows import RowsPlan, arrange_rows
from mirlo.targets.llvm.schedule.stages import plan_stages


@deciding
def plan_blocked(
    view: PrimView, group: BlockGroup[Machine], threads: int = 1, choices: BlockChoices = NO_BLOCK_CHOICES
) -> BlockedPlan | Decline:
    """Plan how to compute these blocks a block of rows at a time."""
    refusal = require_two_contractions(group)
    if refusal is not None:
        return refusal
    # The rows of both contractions are those of a block, which stay in the L2 cache for all panels.
    near = replace(group, machine=replace(group.machine, reread_cycles=0.0))
    stages = plan_stages(near, contraction=plan_tiles)
    if len(stages) != 3:
        return decline("not a contraction, rows and a contraction", stages=len(stages))
    first, rows, last = stages
    if not (
        isinstance(first, VectorContractionPlan)
        and isinstance(rows, RowsPlan)
        and isinstance(last, VectorContractionPlan)
    ):
        return decline("not a contraction, rows and a contraction")
    weights = last.plan.roles.rows.access.value
    scores = first.plan.roles.contraction
    refusal = _require_rows_between(view, first, rows, weights)
    if refusal is not None:
        return refusal
    kept = {value for value, _ in scores.writes} | set(rows.group.kept)
    *outer, width = dims_of(weights.type)
    # Values in the order of their definition.
    results = [output.value for block in (*first.group.blocks, *rows.group.blocks) for output in block.outputs]
    local = tuple(value for value in results if value in kept)
    parts: list[RowBlockContraction] = []
    for contraction, access in ((first, scores.writes[0][1]), (last, last.plan.roles.rows.access)):
        part = _plan_block(contraction, access, width)
        if isinstance(part, Decline):
            return part
        parts.append(part)
    stored = AttentionStages(replace(group, kept=group.kept | kept), parts[0], rows, parts[1], width)
    nests = arrange_blocks(stored, BlockOfRows(), BlockOfRows())
    if isinstance(nests, Decline):
        return nests
    extents = list(nests.rows.rows.values())
    if len(extents) > 1 or D.product(extents) != D.product(outer):
        return decline("rows between the contractions are not one loop", loops=len(extents))
    blocks = _with_blocks(stored, nests, local, weights, choices)
    is_dynamic = not all(isinstance(extent, int) for block in group.blocks for extent in block.domain)
    if is_dynamic and not isinstance(blocks, Decline):
        blocks = replace(blocks, slots=threads if extents else 1)
    return _leaving_out(blocks, group, choices)


def _require_rows_between(
    view: PrimView, first: VectorContractionPlan, rows: RowsPlan, weights: ir.Value
) -> Decline | None:
    """Return why the rows between two contractions cannot be computed a block at a time."""
    produced = {output.value for block in (*first.group.blocks, *rows.group.blocks) for output in block.outputs}
    if weights not in rows.group.kept:
        return decline("the second contraction does not take its rows from what is between")
    if any(value in produced for value in view.returned):
        return decline("a value between the contractions is an output")
    if any(o.value not in produced for block in rows.group.blocks for o in block.inputs):
        return decline("a block between the contractions reads another tensor")
    if any(block.uses_index(axis) for block in rows.group.blocks for axis in range(rows.found.axes)):
        return decline("a block between the contractions computes with the number of its row")
    return None


def _plan_block(contraction: VectorContractionPlan, access: TensorAccess, width: Dim) -> RowBlockContraction | Decline:
    """Plan a contraction for one block; `access` reads or writes rows of this width."""
    plan, unit = contraction.plan, row_major(access.dims, access.shape)
    roles, around = plan.roles, plan.loops
    if roles.rows.guards or roles.rows.edge is not None or roles.contraction.ragged is not None:
        return decline("a contraction reads beyond the edges of a tensor, or has unequal panels")
    if any(side.padded_shape is not None or side.is_converted for side in (roles.rows, roles.columns)):
        return decline("a contraction needs a copy of an operand")
    if around.order.rows_outside:
        return decline("a contraction does not share rows between columns")
    row_axis = plan.tile.row_axis
    for axis in (*around.columns, *around.rows):
        if unit.stride(axis) % width != 0 or unit.stride(axis) == 0:
            return decline("an axis of a contraction does not step by rows")
    if row_axis is not None and unit.stride(row_axis) != width:
        return decline("a tile's rows are not neighbours", step=unit.stride(row_axis))
    if not all(_is_inside_row(axis, unit.stride(axis), width) for axis in (roles.lane_axis, *around.reduce)):
        return decline("lanes or sums of a contraction are not within a row")
    return RowBlockContraction(plan, contraction.group, unit)


@deciding
def arrange_blocks(stages: AttentionStages, first: BlockOfRows, last: BlockOfRows) -> AttentionLoops | Decline:
    """Arrange the loops of an attention as one tree, with these parts of the products for a block of rows."""
    s, rows = schedule_of(stages.group), stages.rows
    names = dict(zip(stages.group.blocks, s.blocks(), strict=True))
    try:
        before = _arrange_product(s, names, stages.first, stages.width, first)
        between = arrange_rows(s, [names[block] for block in rows.group.blocks], rows.found, rows.chosen)
        after = _arrange_product(s, names, stages.last, stages.width, last)
    except ScheduleError as error:
        return decline("its loops make no register tile in a block of rows", found=str(error))
    return AttentionLoops(s, before, between, after)


def _arrange_product(
    s: Schedule, names: Mapping[BlockView, str], product: RowBlockContraction, width: Dim, part: BlockOfRows
) -> ContractionNest:
    """Arrange the loops of a contraction for one block."""
    loops = arrange_contraction(s, [names[block] for block in product.group.blocks], part.choices(product.plan))
    outer = {loop: (product.form.coefficient(loops.axes[loop]) // width, s.extent(loop)) for loop in loops.outer}
    return ContractionNest(loops, outer, part.is_counted and product.plan.tile.row_axis is not None)


def _is_inside_row(axis: BlockAxis, stride: Dim, width: Dim) -> bool:
    """Return whether an axis, with this stride in rows of a width, stays within one row."""
    if isinstance(stride, int) and isinstance(axis.extent, int) and isinstance(width, int):
        return stride * (axis.extent - 1) < width
    return stride == 0 or (stride == 1 and axis.extent == width)


def _with_blocks(
    stages: AttentionStages,
    nests: AttentionLoops,
    local: tuple[ir.Value, ...],
    weights: ir.Value,
    choices: BlockChoices,
) -> BlockedPlan | Decline:
    first, last, width = stages.first, stages.last, stages.width
    outer = dims_of(weights.type)[:-1]
    extents = [part.rows for part in (first, last)]
    steps = {*extents, D.product(list(outer))}
    for stride, count in (*nests.first.outer.values(), *nests.last.outer.values()):
        steps |= {stride, stride * count}
    # Steps of the loops over rows: adjacent dims, or several of them fused.
    chain: list[Dim] = [1]
    for dim in reversed(outer):
        chain.append(chain[-1] * dim)
    ordered = [step for i, step in enumerate(chain) if step in steps and step not in chain[:i]]
    extent = next((step for step in ordered if step in extents), 1)
    if not steps <= set(ordered) or any(chain.index(step) < chain.index(extent) for step in steps):
        return decline("the loops of the contractions do not fit into each other", steps=[str(s) for s in steps])
    loops = tuple((small, large // small) for small, large in zip(ordered, ordered[1:], strict=False))[::-1]
    if isinstance(extent, int) and isinstance(width, int) and all(isinstance(count, int) for _, count in loops):
        heads = prod(count for _, count in loops if isinstance(count, int))
        block: Dim = _block_rows(
            extent, width, heads, (first.plan.tile.rows, last.plan.tile.rows), first.plan.machine,
            element_bytes(weights.type.element_type), choices.block_rows,
        )  # fmt: skip
    else:
        block = _dynamic_block(extent, width, first.plan, choices.block_rows, is_cut=False)
    return BlockedPlan(stages, nests, loops, extent, block, local, weights)


def _dynamic_block(extent: Dim, width: Dim, plan: TiledContraction, chosen: int | None, is_cut: bool) -> Dim:
    """Return the rows of a block for dynamic sizes, as a dim; fewer if columns that a mask hides are skipped."""
    tile = plan.tile.rows
    size = element_bytes(plan.roles.contraction.product.accumulate_type)
    if chosen is not None:
        return max(1, chosen // tile) * tile
    most = D.ceildiv(D.maximum(MIN_MASKED_ROWS, extent // MIN_ROW_BLOCKS) if is_cut else extent, tile)
    return D.maximum(MIN_TILES_PER_BLOCK, D.minimum(_rows_of_scores(plan.machine, width, size) // tile, most)) * tile


def _leaving_out(
    plan: BlockedPlan | Decline, group: BlockGroup[Machine], choices: BlockChoices
) -> BlockedPlan | Decline:
    """Skip the columns that a mask hides from all rows of a block."""
    limit = None if isinstance(plan, Decline) else _limit(plan, group)
    if limit is None or isinstance(plan, Decline):
        return plan
    if plan.slots is not None:
        block = _dynamic_block(plan.extent, plan.stages.width, plan.stages.first.plan, choices.block_rows, is_cut=True)
        return replace(plan, limit=limit, block=block)
    if plan.extent < 4 * MIN_MASKED_ROWS:
        return plan
    tile = plan.stages.first.plan.tile.rows
    smaller = -(-max(MIN_MASKED_ROWS, plan.extent // MIN_ROW_BLOCKS) // tile) * tile
    is_chosen = choices.block_rows is not None
    return replace(plan, limit=limit, block=plan.block if is_chosen else min(plan.block, smaller))


def _limit(plan: BlockedPlan, group: BlockGroup[Machine]) -> tuple[int, Dim] | None:
    """Return the coefficient and constant of the first column that a row does not need."""
    first, last = plan.stages.first.plan, plan.stages.last.plan
    if any(each.tile.dot or each.tile.group is not None or each.loops.unrolled for each in (first, last)):
        return None
    if len(last.loops.reduce) != 1 or first.roles.lane_axis.extent != plan.stages.width:
        return None
    attention = find_attention(group)
    if (
        isinstance(attention, Decline)
        or attention.key_loop < 1
        or attention.extents[attention.key_loop - 1] != plan.extent
    ):
        return None
    query = attention.key_loop - 1
    limits = [
        bound.limit for bound in attention.bounds if bound.limit.variables() <= {query} and not bound.limit.divisions
    ]
    limit = next((limit for limit in limits if limit.coefficient(query) >= 0), None)
    return None if limit is None else (limit.coefficient(query), limit.constant + 1)


def _block_rows(
    extent: int, width: int, heads: int, tiles: tuple[int, int], machine: Machine, size: int, chosen: int | None
) -> int:
    """Return the rows of a block, in whole tiles of both contractions, with these rows, if it has several of them."""
    rows = chosen or max(1, static_dim(_rows_of_scores(machine, width, size)))
    if heads == 1 and chosen is None:
        rows = min(rows, -(-extent // MIN_ROW_BLOCKS))
    if rows >= extent:
        return extent
    both = lcm(*tiles)
    tile = both if 2 * both <= rows else tiles[0]
    return max(rows // tile, 1) * tile


def _rows_of_scores(machine: Machine, width: Dim, size: int) -> Dim:
    """Return the rows whose scores fill a part of the L2 cache, or more if keys and values were packed for few."""
    near, most = (part // size // width for part in (machine.l2_bytes // 4, MAX_SCORES_L2 * machine.l2_bytes))
    return D.maximum(near, D.minimum(most, ROWS_TO_PACK_FOR))


def block_space(kernel: Kernel, context: ScheduleContext, group: BlockGroup[Machine]) -> list[dict[str, int]]:
    """Return the numbers of rows of a block that are worth a measurement, those nearest to the plan's first."""
    plan = plan_blocked(kernel.view, group, context.options.get("threads", 1))
    if isinstance(plan, Decline) or not (isinstance(plan.extent, int) and isinstance(plan.block, int)):
        return []
    extent, block = plan.extent, plan.block
    rows = {min(count, extent) for count in tried_values(BlockChoices, "block_rows")} - {block}
    return [tuning_point(BlockChoices(count)) for count in sorted(rows, key=lambda count: abs(count - block))]


def schedule_blocks(
    kernel: Kernel, context: ScheduleContext, group: BlockGroup[Machine], choices: BlockChoices
) -> ir.OpView | Decline:
    """Schedule a function as two contractions and the rows between them."""
    threads = context.options.get("threads", 1)
    plan = plan_blocked(kernel.view, group, threads, choices)
    if isinstance(plan, Decline):
        return plan
    single = _plan_one_row(kernel, plan, threads, group.machine, choices)
    buffers = BufferFunction(kernel.view)
    facts: ScheduleFacts = {"rule": "blocked", **plan.describe()}
    if single is None:
        resolved = choice_values(BlockChoices(plan.block if isinstance(plan.block, int) else None))
        return buffers.build(lambda: plan.emit(TensorBuffers(buffers)), facts, resolved)
    try:
        emit = partial(emit_by_rows, buffers, single.view, single.rows, single.plan.emit, plan.emit)
        return buffers.build(emit, {**facts, "one_row": True})
    finally:
        single.view.op.erase()


@dataclass(frozen=True)
class _OneRowPlan:
    """The plan for a run-time number of rows that is 1, as in a step of a decoder.

    Then the heads that share keys are rows next to each other, and keys and values are read once for all of them.
    """

    view: PrimView
    """The function for one row."""
    plan: BlockedPlan
    rows: Dim
    """The rows in general."""


def _plan_one_row(
    kernel: Kernel, plan: BlockedPlan, threads: int, machine: Machine, choices: BlockChoices
) -> _OneRowPlan | None:
    """Plan for one row; None if that gains nothing, or if the rows are known."""
    shared = _shared_heads(plan)
    if shared is None:
        return None
    rows, heads = shared
    view = PrimView(with_dims(kernel.view.op, {str(rows): 1}))
    blocked = plan_blocked(view, whole_group(view, machine), threads, choices)
    if isinstance(blocked, Decline) or blocked.extent != heads:
        view.op.erase()
        return None
    return _OneRowPlan(view, blocked, rows)


def _shared_heads(plan: BlockedPlan) -> tuple[Dim, int] | None:
    """Return the rows of a head, a symbol, and the heads that share keys: a loop, or fused with the rows."""
    rows = plan.tokens
    if rows is None:
        return None
    if plan.extent == rows:
        heads = plan.loops[-1][1] if plan.loops and plan.loops[-1][0] == rows else None
    else:
        heads = D.substitute(plan.extent, {str(rows): 1})
        if plan.extent != rows * heads:
            return None
    return (rows, heads) if isinstance(heads, int) else None
