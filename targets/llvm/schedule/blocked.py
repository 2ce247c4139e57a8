"""Two contractions with row operations between them, a block of rows at a time: attention.

The second contraction reads the result of the first row by row, after reductions of each row. So all three are
computed for a block of rows before the next block: scores and weights of one block stay in the cache. The loops
outside of the blocks, over heads and batches, are shared; threads divide them, or the blocks if there are no such
loops.
"""

from __future__ import annotations

from dataclasses import replace
from math import lcm

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, static_dim
from mirlo.dialects.core.types import dims_of
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.view import PrimView
from mirlo.passes.rule_choices import choice_values, tried_values, tuning_point
from mirlo.passes.rules import Decline, deciding, decline
from mirlo.passes.schedule.blocks.contraction.analysis import TensorAccess
from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis, row_major
from mirlo.passes.schedule.blocks.group import BlockGroup, whole_group
from mirlo.passes.schedule.buffers import ScheduleFacts, TensorBuffers
from mirlo.passes.schedule.kernel import Kernel, ScheduleContext
from mirlo.passes.schedule.primitives.row_blocks import SharedRows
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.tree import ScheduleError
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.choices import NO_BLOCK_CHOICES, BlockChoices
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction import VectorContractionPlan, plan_tiles
from mirlo.targets.llvm.schedule.contraction.tiled import arrange_contraction
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import BlockOfRows, TiledContraction, TiledLoops
from mirlo.targets.llvm.schedule.cost import (
    MAX_SCORES_L2,
    MIN_MASKED_ROWS,
    MIN_ROW_BLOCKS,
    MIN_TILES_PER_BLOCK,
    ROWS_TO_PACK_FOR,
)
from mirlo.targets.llvm.schedule.part_rules import require_two_contractions
from mirlo.targets.llvm.schedule.rows import RowLoops, RowsPlan, arrange_rows
from mirlo.targets.llvm.schedule.stages import plan_stages


@dataclass(frozen=True)
class AttentionStages:
    """Two products and the rows between them."""

    group: BlockGroup[Machine]
    first: VectorContractionPlan
    rows: RowsPlan
    last: VectorContractionPlan


@dataclass(frozen=True)
class AttentionLoops:
    """The loops of an attention as one tree: a nest of each product, and of the rows between them."""

    s: Schedule
    blocks: list[str]
    """The blocks of the nests."""
    first: TiledLoops
    rows: RowLoops
    last: TiledLoops
    pages: list[str]
    """The loops of the products over pages."""
    shared: SharedRows

    def block_rows(self, rows: Dim, threads: int, is_hidden: bool = False, lanes: int = 1) -> None:
        """Compute the nests a block of rows at a time, without the columns that are hidden from all of them."""
        ends = [self.first.panel, *self.rows.limited, *self.last.over] if is_hidden else []
        self.s.block_rows(self.blocks, rows if isinstance(rows, int) else str(rows), ends, threads, self.pages, lanes)


@dataclass(frozen=True)
class BlockedPlan:
    """The plan of two contractions, and the row operations between them, block by block."""

    stages: AttentionStages
    s: Schedule
    shared: SharedRows
    block: Dim
    """The rows of a block."""
    slots: int
    """How many threads compute blocks at the same time, if sizes are dynamic; 0 if all are static."""
    is_hidden: bool
    """Whether columns that a mask hides are skipped."""

    def emit(self, memory: TensorBuffers) -> None:
        """Emit all blocks at the insertion point."""
        self.s.emit_part(memory)

    @property
    def tokens(self) -> Dim | None:
        """Return the symbol that the number of rows, but not of columns, depends on, if it is one."""
        symbols = D.symbols_of(self.shared.extent)
        is_one = len(symbols) == 1 and not symbols & D.symbols_of(self.shared.width)
        return D.symbol(next(iter(symbols))) if is_one else None

    def describe(self) -> dict[str, Dim | bool | list[int]]:
        first, last = self.stages.first.plan.tile, self.stages.last.plan.tile
        return {
            "block": self.block,
            "tile": [first.rows, first.columns],
            "last_tile": [last.rows, last.columns],
            **({"hidden": True} if self.is_hidden else {}),
        }


@deciding
def plan_blocked(
    s: Schedule, group: BlockGroup[Machine], threads: int = 1, choices: BlockChoices = NO_BLOCK_CHOICES
) -> BlockedPlan | Decline:
    """Plan how to compute these blocks of a schedule a block of rows at a time."""
    refusal = require_two_contractions(group)
    if refusal is not None:
        return refusal
    # The rows of both contractions are those of a block, which stay in the L2 cache for all panels.
    near = replace(group, machine=replace(group.machine, reread_cycles=0.0))
    parts = plan_stages(near, contraction=plan_tiles)
    if len(parts) != 3:
        return decline("not a contraction, rows and a contraction", stages=len(parts))
    first, rows, last = parts
    if not (
        isinstance(first, VectorContractionPlan)
        and isinstance(rows, RowsPlan)
        and isinstance(last, VectorContractionPlan)
    ):
        return decline("not a contraction, rows and a contraction")
    weights = last.plan.roles.rows.access.value
    scores = first.plan.roles.contraction
    refusal = _require_rows_between(s.view, first, rows, weights)
    if refusal is not None:
        return refusal
    *outer, width = dims_of(weights.type)
    for contraction, access in ((first, scores.writes[0][1]), (last, last.plan.roles.rows.access)):
        refusal = _require_blocks(contraction, access, width)
        if refusal is not None:
            return refusal
    stages = AttentionStages(group, first, rows, last)
    nests = arrange_blocks(s, stages, BlockOfRows(), BlockOfRows())
    if isinstance(nests, Decline):
        return nests
    is_dynamic = not all(isinstance(extent, int) for block in group.blocks for extent in block.domain)
    slots = 0 if not is_dynamic else threads if nests.shared.row is not None else 1
    is_hidden = _is_hidden(stages, nests.shared, is_dynamic)
    block = _rows_of_block(
        stages, nests.shared, element_bytes(weights.type.element_type), choices, is_dynamic, is_hidden
    )
    nests.block_rows(block, slots, is_hidden)
    return BlockedPlan(stages, nests.s, nests.shared, block, slots, is_hidden)


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


def _require_blocks(contraction: VectorContractionPlan, access: TensorAccess, width: Dim) -> Decline | None:
    """Return why a contraction cannot be computed for a block of rows; `access` reads or writes rows of this width."""
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
    return None


@deciding
def arrange_blocks(
    s: Schedule, stages: AttentionStages, first: BlockOfRows, last: BlockOfRows
) -> AttentionLoops | Decline:
    """Arrange the loops of an attention in a schedule, with these parts of the products for a block of rows."""
    names = [[s.block_of(block) for block in each.group.blocks] for each in (stages.first, stages.rows, stages.last)]
    try:
        before = arrange_contraction(s, names[0], first.choices(stages.first.plan))
        rows = arrange_rows(s, names[1], stages.rows.found, stages.rows.chosen)
        after = arrange_contraction(s, names[2], last.choices(stages.last.plan))
        _reuse_scores(s, stages)
        blocks = [names[0][0], *names[1], names[2][0]]
        pages = [*before.blocks, *after.blocks] if first.columns else []
        shared = s.shared_rows(blocks, pages)
    except ScheduleError as error:
        return decline("its loops make no register tile in a block of rows", found=str(error))
    return AttentionLoops(s, blocks, before, rows, after, pages, shared)


def _reuse_scores(s: Schedule, stages: AttentionStages) -> None:
    """Store the weights in the memory of the scores, which are read for the last time when weights are computed."""
    weights = s.buffer_of(stages.last.plan.roles.rows.access.value)
    for scores in (s.buffer_of(value) for value, _ in stages.first.plan.roles.contraction.writes):
        if s.can_share_memory(scores, weights):
            s.share_memory(scores, weights)
            return


def _is_inside_row(axis: BlockAxis, stride: Dim, width: Dim) -> bool:
    """Return whether an axis, with this stride in rows of a width, stays within one row."""
    if isinstance(stride, int) and isinstance(axis.extent, int) and isinstance(width, int):
        return stride * (axis.extent - 1) < width
    return stride == 0 or (stride == 1 and axis.extent == width)


def _rows_of_block(
    stages: AttentionStages, shared: SharedRows, size: int, choices: BlockChoices, is_dynamic: bool, is_hidden: bool
) -> Dim:
    """Return the rows of a block; fewer if columns that a mask hides are skipped."""
    extent, width = shared.extent, shared.width
    if is_dynamic or not (isinstance(extent, int) and isinstance(width, int)):
        return _dynamic_block(extent, width, stages.first.plan, choices.block_rows, is_hidden)
    heads = static_dim(D.product([count for _, count in shared.loops]))
    tiles = (stages.first.plan.tile.rows, stages.last.plan.tile.rows)
    block = _block_rows(extent, width, heads, tiles, stages.first.plan.machine, size, choices.block_rows)
    if not is_hidden or choices.block_rows is not None:
        return block
    return min(block, -(-max(MIN_MASKED_ROWS, extent // MIN_ROW_BLOCKS) // tiles[0]) * tiles[0])


def _dynamic_block(extent: Dim, width: Dim, plan: TiledContraction, chosen: int | None, is_cut: bool) -> Dim:
    """Return the rows of a block for dynamic sizes, as a dim; fewer if columns that a mask hides are skipped."""
    tile = plan.tile.rows
    size = element_bytes(plan.roles.contraction.product.accumulate_type)
    if chosen is not None:
        return max(1, chosen // tile) * tile
    most = D.ceildiv(D.maximum(MIN_MASKED_ROWS, extent // MIN_ROW_BLOCKS) if is_cut else extent, tile)
    return D.maximum(MIN_TILES_PER_BLOCK, D.minimum(_rows_of_scores(plan.machine, width, size) // tile, most)) * tile


def _is_hidden(stages: AttentionStages, shared: SharedRows, is_dynamic: bool) -> bool:
    """Return whether to skip the columns that a mask hides from all rows of a block."""
    first, last = stages.first.plan, stages.last.plan
    if any(each.tile.dot or each.tile.group is not None or each.loops.unrolled for each in (first, last)):
        return False
    if len(last.loops.reduce) != 1 or first.roles.lane_axis.extent != shared.width:
        return False
    if not is_dynamic and not D.is_certain(lambda: shared.extent >= 4 * MIN_MASKED_ROWS):
        return False
    return shared.hidden is not None


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
    plan = plan_blocked(Schedule(kernel.view), group, context.options.get("threads", 1))
    if isinstance(plan, Decline) or not (isinstance(plan.shared.extent, int) and isinstance(plan.block, int)):
        return []
    extent, block = plan.shared.extent, plan.block
    rows = {min(count, extent) for count in tried_values(BlockChoices, "block_rows")} - {block}
    return [tuning_point(BlockChoices(count)) for count in sorted(rows, key=lambda count: abs(count - block))]


def schedule_blocks(
    kernel: Kernel, context: ScheduleContext, group: BlockGroup[Machine], choices: BlockChoices
) -> ir.OpView | Decline:
    """Schedule a function as two contractions and the rows between them."""
    threads = context.options.get("threads", 1)
    plan = plan_blocked(Schedule(kernel.view), group, threads, choices)
    if isinstance(plan, Decline):
        return plan
    facts: ScheduleFacts = {"rule": "blocked", **plan.describe()}
    if _plan_one_row(plan, threads, group.machine, choices):
        return plan.s.emit({**facts, "one_row": True})
    return plan.s.emit(facts, choice_values(BlockChoices(plan.block if isinstance(plan.block, int) else None)))


def _plan_one_row(plan: BlockedPlan, threads: int, machine: Machine, choices: BlockChoices) -> bool:
    """Arrange loops of their own for one row, as in a step of a decoder; return whether that gains something.

    Then the heads that share keys are rows next to each other, and keys and values are read once for all of them.
    """
    shared = _shared_heads(plan)
    if shared is None:
        return False
    (rows, heads), count = shared, len(plan.s.trace.calls)
    single = plan.s.specialize(str(rows), 1)
    blocked = plan_blocked(single, whole_group(single.view, machine), threads, choices)
    if not isinstance(blocked, Decline) and blocked.shared.extent == heads:
        return True
    plan.s.undo(count)
    return False


def _shared_heads(plan: BlockedPlan) -> tuple[Dim, int] | None:
    """Return the rows of a head, a symbol, and the heads that share keys: a loop, or fused with the rows."""
    rows = plan.tokens
    if rows is None:
        return None
    if plan.shared.extent == rows:
        heads = plan.shared.loops[-1][1] if plan.shared.loops and plan.shared.loops[-1][0] == rows else None
    else:
        heads = D.substitute(plan.shared.extent, {str(rows): 1})
        if plan.shared.extent != rows * heads:
            return None
    return (rows, heads) if isinstance(heads, int) else None
