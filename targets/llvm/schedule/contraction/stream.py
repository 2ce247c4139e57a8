"""Prefetches of column operands from beyond the L1 cache: further ahead in the same panel, or in the next panel."""

from __future__ import annotations

from math import prod

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.schedule.blocks.contraction.forms import LoopAxis
from mirlo.targets.llvm.schedule.contraction.register_tile import RegisterTilePlan
from mirlo.targets.llvm.schedule.cost import LEAD_BYTES, PREFETCHED_IN_BLOCKS


def next_panel(plan: RegisterTilePlan) -> IndexExpr | None:
    """Return the position in the column operand that the current tiles should prefetch for the next panel, or None.

    Only the first row of tiles reads a panel from memory; prefetched by all tiles of a panel, the next one arrives
    while this one is in use. The number of tiles may be dynamic. In blocks of rows the position is relative to the
    block, whose tiles read the panel.
    """
    form = plan.columns.form
    if not _streams(plan) or plan.lane_axis.extent != plan.tile_columns:
        return None
    width = _width(plan)
    tiles = _tiles_of_panel(plan)
    if (isinstance(tiles, int) and tiles < 2) or _column_bytes(plan) <= _resident_bytes(plan):
        return None
    tiles = D.maximum(1, tiles)
    # A tile that is alone prefetches one line: hardware is faster, and it does not read the panel again.
    share = D.ceildiv(width, tiles) * D.minimum(1, tiles - 1)
    terms = {axis.id: form.stride(axis) for axis in plan.column_loops}
    terms |= {axis.id: form.stride(axis) // width * share for axis in plan.reduce}
    loops, depth = plan.order_of_loops, plan.depth
    if loops.depth_axis is not None:
        depth = depth // loops.depth_axis.extent * loops.depth_block
    weight = depth * share
    if plan.row_axis is not None:
        terms[plan.row_axis.id] = D.ceildiv(weight, plan.tile_rows)
        weight *= D.ceildiv(_rows_at_once(plan, plan.row_axis), plan.tile_rows)
    for axis in reversed(plan.row_loops):
        terms[axis.id] = weight
        weight *= axis.extent
    return IndexExpr(terms, form.constant + plan.depth * width)


def prefetch_bytes(plan: RegisterTilePlan) -> int | None:
    """Return the prefetch distance of a tile in bytes of the column operand; None if it does not prefetch."""
    if not _streams(plan) or _tiles_of_panel(plan) != 1 or _column_bytes(plan) <= _resident_bytes(plan):
        return None
    chosen = plan.choices.lead_bytes
    return LEAD_BYTES if chosen is None else chosen


def _streams(plan: RegisterTilePlan) -> bool:
    """Return whether the column operand consists of panels that are read from the first byte to the last."""
    inner = plan.reduce[-1] if plan.reduce else None
    if inner is None or not all(isinstance(axis.extent, int) for axis in (plan.lane_axis, *plan.reduce)):
        return False
    if not all(isinstance(dim, int) for dim in plan.columns.access.shape):
        return False
    is_panel = plan.columns.form.stride(inner) == _width(plan) and plan.lane_axis.extent <= plan.tile_columns
    return is_panel and plan.is_streamed and not plan.dot and not plan.unrolled


def _width(plan: RegisterTilePlan) -> int:
    """Return the elements of a panel for one k-step."""
    extent = plan.lane_axis.extent
    assert isinstance(extent, int)
    return extent * (1 if plan.group is None else plan.group.size)


def _tiles_of_panel(plan: RegisterTilePlan) -> Dim:
    """Return the number of tiles that read the same panel, one after the other."""
    tiles = D.product([axis.extent for axis in plan.row_loops])
    return tiles * (D.ceildiv(_rows_at_once(plan, plan.row_axis), plan.tile_rows) if plan.row_axis is not None else 1)


def _rows_at_once(plan: RegisterTilePlan, axis: LoopAxis) -> Dim:
    """Return the rows that are computed with a panel before the next panel."""
    return plan.order_of_loops.row_block or axis.extent


def _column_bytes(plan: RegisterTilePlan) -> int:
    size: int = prod(plan.columns.access.shape) * element_bytes(plan.columns.access.element_type)
    return size


def _resident_bytes(plan: RegisterTilePlan) -> int:
    """Return the bytes of a column operand up to which prefetches cost more than they save.

    Weights that fit into the L2 cache are not there, as all other weights of the model were read since the last call.
    Blocks of rows find them there from the second block on.
    """
    l1_bytes = plan.machine.l1_bytes
    return PREFETCHED_IN_BLOCKS * l1_bytes if plan.order_of_loops.row_block else l1_bytes
