"""Order of a contraction's loops, their blocking, and which of them threads divide.

Panels of columns are outermost, or the rows if every column has rows of its own (depthwise convolutions) and these do
not stay in the L2 cache, and each element is reduced over all of K at once. Where rows, results or panels leave the L2
cache, the loops are in blocks of rows or of K (`costs.fastest_order`). Tuning may choose otherwise: the best order
depends on other contents of the caches.
"""

from __future__ import annotations

from dataclasses import replace

from mirlo.dialects.core import dims as D
from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis
from mirlo.passes.schedule.primitives.sum_blocks import sum_block
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.choices import ContractionChoices
from mirlo.targets.llvm.schedule.contraction.operands import ContractionOperand
from mirlo.targets.llvm.schedule.cost import DEPTH_BLOCKS, MIN_K_BLOCK, PANELS_TO_SHARE, ROW_BLOCKS

PANELS, ROWS, BOTH = 0, 1, 2
"""What threads divide."""


@dataclass(frozen=True)
class LoopOrder:
    """The order of the loops around the tiles."""

    rows_outside: bool = False
    """Whether the loops over rows are outside of those over panels."""
    row_block: int = 0
    """Rows that are computed with a panel before the next panel; 0 for all of them."""
    depth_axis: BlockAxis | None = None
    """The reduction axis that is blocked, by the outermost loop."""
    depth_block: int = 0
    """Extent of a K block."""
    share: int | None = None
    """What threads divide, if chosen: `PANELS`, `ROWS` or `BOTH`."""

    @property
    def is_reordered(self) -> bool:
        """Return whether panels are no longer read one after the other, each once."""
        return bool(self.row_block or self.rows_outside)

    def shared_loops(self, outer: int, inner: int) -> int:
        """Return what threads divide: the loops around tiles, of this many iterations, or those of tiles as well."""
        if self.share is not None:
            return self.share
        return BOTH if outer < min(PANELS_TO_SHARE, inner) else PANELS


@dataclass(frozen=True)
class Freedom:
    """The loop orders that a contraction permits."""

    swap: bool
    """Whether rows may be outside of panels."""
    block_rows: bool
    """Whether row tiles may be processed in blocks."""
    depth_axis: BlockAxis | None
    """The reduction axis that may be blocked."""
    sum_block: int = 1
    """What an extent of its blocks must be a multiple of."""


def freedom(
    rows: ContractionOperand,
    lane_axis: BlockAxis,
    row_axis: BlockAxis | None,
    row_loops: list[BlockAxis],
    reduce: list[BlockAxis],
    unrolled: list[BlockAxis],
    *,
    is_plain: bool,
) -> Freedom:
    """Return the permitted orders; `is_plain` means that the kernel neither packs nor uses dot products or groups.

    Columns with rows of their own have no panel to share: the cost model alone decides whether rows are outside.
    """
    if not is_plain or rows.form.stride(lane_axis) != 0 or not isinstance(lane_axis.extent, int):
        return Freedom(False, False, None)
    can_block = row_axis is not None and isinstance(row_axis.extent, int) and rows.edge is None
    guarded = {window.tap.id for window in rows.guards}
    free = [axis for axis in reduce if axis not in unrolled and axis.id not in guarded]
    axes = [*free, *row_loops, *([row_axis] if row_axis is not None else [])]
    is_fixed = can_block and all(isinstance(axis.extent, int) for axis in axes)
    longest = max(free, key=lambda axis: axis.extent, default=None) if is_fixed else None
    is_long = longest is not None and longest.extent >= 2 * MIN_K_BLOCK
    return Freedom(bool(row_loops), can_block, longest if is_long else None)


def keep_order_of_sum(free: Freedom, reduce: list[BlockAxis]) -> Freedom:
    """Return the permitted orders in which a sum has the same order as without blocks of K."""
    axis = free.depth_axis
    if axis is None or axis is not reduce[0]:
        return replace(free, depth_axis=None)  # other loops of the sum would be inside of blocks
    return free if len(reduce) > 1 else replace(free, sum_block=sum_block(axis.extent) or axis.extent)


def choose_order(
    chosen: ContractionChoices, free: Freedom, own_rows: bool, row_axis: BlockAxis | None, tile_rows: int
) -> LoopOrder:
    """Apply the chosen order as far as the contraction permits it.

    With `own_rows` rows are outside: `costs.fastest_order` decides whether panels are.
    """
    if own_rows:
        return LoopOrder(rows_outside=True, share=None)
    block = (chosen.row_block or 0) * tile_rows if free.block_rows else 0
    if row_axis is None or isinstance(row_axis.extent, int) and block >= row_axis.extent:
        block = 0
    axis, depth = free.depth_axis, chosen.depth_block or 0
    if axis is None or not MIN_K_BLOCK <= depth < axis.extent:
        axis, depth = None, 0
    return LoopOrder(bool(chosen.rows_outside) and free.swap, block, axis, depth, chosen.share)


def other_orders(free: Freedom, own: LoopOrder, row_axis: BlockAxis | None, tile_rows: int) -> list[LoopOrder]:
    """Return the orders with which an operand may stay in the caches: in blocks of rows, or of K."""
    orders = [replace(own, rows_outside=True)] if free.swap else []
    if free.block_rows and row_axis is not None:
        blocks = [-(-rows // tile_rows) * tile_rows for rows in ROW_BLOCKS]
        extent = D.estimate_dim(row_axis.extent)
        orders += [replace(own, row_block=block) for block in dict.fromkeys(blocks) if block < extent]
    axis = free.depth_axis
    if axis is not None:
        blocks = [depth for depth in DEPTH_BLOCKS if depth < D.estimate_dim(axis.extent) and not depth % free.sum_block]
        orders += [replace(own, depth_axis=axis, depth_block=depth) for depth in blocks]
    return orders


def block_of_threads(
    free: Freedom, own: LoopOrder, row_axis: BlockAxis | None, tile_rows: int, threads: int
) -> list[LoopOrder]:
    """Return the order with a block of rows for each thread, if the contraction permits it."""
    if not free.block_rows or row_axis is None or not isinstance(row_axis.extent, int):
        return []
    block = -(-row_axis.extent // (threads * tile_rows)) * tile_rows
    return [replace(own, row_block=block)] if block < row_axis.extent else []
