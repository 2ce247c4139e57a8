"""Prefetches of column operands from beyond the L1 cache: further ahead in the same panel, or in the next panel."""

from __future__ import annotations

from math import prod

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import TiledContraction
from mirlo.targets.llvm.schedule.cost import LEAD_BYTES, PREFETCHED_IN_BLOCKS


def prefetches_panels(plan: TiledContraction) -> bool:
    """Return whether tiles prefetch the next panel, a share each.

    Only the first row of tiles reads a panel from memory; prefetched by all tiles of a panel, the next one arrives
    while this one is in use. The number of tiles may be dynamic.
    """
    if not _streams(plan) or plan.roles.lane_axis.extent != plan.tile.columns:
        return False
    tiles = _tiles_of_panel(plan)
    return (not isinstance(tiles, int) or tiles > 1) and _column_bytes(plan) > _resident_bytes(plan)


def prefetch_bytes(plan: TiledContraction) -> int | None:
    """Return the prefetch distance of a tile in bytes of the column operand; None if it does not prefetch."""
    if not _streams(plan) or _tiles_of_panel(plan) != 1 or _column_bytes(plan) <= _resident_bytes(plan):
        return None
    chosen = plan.choices.lead_bytes
    return LEAD_BYTES if chosen is None else chosen


def _streams(plan: TiledContraction) -> bool:
    """Return whether the column operand consists of panels that are read from the first byte to the last."""
    columns, lane_axis, reduce = plan.roles.columns, plan.roles.lane_axis, plan.loops.reduce
    if not reduce or not all(isinstance(axis.extent, int) for axis in (lane_axis, *reduce)):
        return False
    if not all(isinstance(dim, int) for dim in columns.access.shape):
        return False
    is_panel = columns.form.stride(reduce[-1]) == _width(plan) and lane_axis.extent <= plan.tile.columns
    is_in_turn = plan.has_own_rows or not plan.loops.order.rows_outside
    return is_panel and is_in_turn and not plan.tile.dot and not plan.loops.unrolled


def _width(plan: TiledContraction) -> int:
    """Return the elements of a panel for one k-step."""
    extent = plan.roles.lane_axis.extent
    assert isinstance(extent, int)
    return extent * (1 if plan.tile.group is None else plan.tile.group.size)


def _tiles_of_panel(plan: TiledContraction) -> Dim:
    """Return the number of tiles that read the same panel, one after the other."""
    tiles = D.product([axis.extent for axis in plan.loops.rows])
    axis = plan.tile.row_axis
    return tiles if axis is None else tiles * D.ceildiv(_rows_at_once(plan, axis), plan.tile.rows)


def _rows_at_once(plan: TiledContraction, axis: BlockAxis) -> Dim:
    """Return the rows that are computed with a panel before the next panel."""
    return plan.loops.order.row_block or axis.extent


def _column_bytes(plan: TiledContraction) -> int:
    size: int = prod(plan.roles.columns.access.shape) * element_bytes(plan.roles.columns.access.element_type)
    return size


def _resident_bytes(plan: TiledContraction) -> int:
    """Return the bytes of a column operand up to which prefetches cost more than they save.

    Weights that fit into the L2 cache are not there, as all other weights of the model were read since the last call.
    Blocks of rows find them there from the second block on.
    """
    l1_bytes = plan.machine.l1_bytes
    return PREFETCHED_IN_BLOCKS * l1_bytes if plan.loops.order.row_block else l1_bytes
