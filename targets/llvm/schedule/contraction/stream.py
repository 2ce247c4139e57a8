"""What tiles fetch of column operands from beyond the first cache: a later part of their own, or the next panel."""

from __future__ import annotations

from math import prod

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.schedule.blocks.contraction.forms import Form
from mirlo.targets.llvm.schedule.contraction.plan import Plan

LEAD_BYTES = 4096
"""How far ahead of what is read a panel is fetched that one tile reads."""


def next_panel(plan: Plan) -> Form | None:
    """Position in the column operand of what the tiles at hand should fetch for the next panel, or None.

    Panels that come from memory are read by the first row of tiles only; spread over all tiles of a panel, the next one
    arrives while this one is computed with. How many tiles there are may be known at run time only.
    """
    form, width = plan.columns.form, plan.tile_columns
    if not _streams(plan) or plan.lane_axis.extent != width or plan.group is not None:
        return None
    tiles = _tiles_of_panel(plan)
    if (isinstance(tiles, int) and tiles < 2) or _column_bytes(plan) <= plan.machine.l2_bytes:
        return None
    share = D.ceildiv(width, D.maximum(1, tiles))
    terms = {axis.id: form.stride(axis) for axis in plan.column_loops}
    terms |= {axis.id: form.stride(axis) // width * share for axis in plan.reduce}
    loops, depth = plan.order_of_loops, plan.depth
    if loops.depth_axis is not None:
        depth = depth // loops.depth_axis.extent * loops.depth_block
    weight = depth * share
    if plan.row_axis is not None:
        terms[plan.row_axis.id] = D.ceildiv(weight, plan.tile_rows)
        weight *= D.ceildiv(plan.row_axis.extent, plan.tile_rows)
    for axis in reversed(plan.row_loops):
        terms[axis.id] = weight
        weight *= axis.extent
    return Form(terms, form.constant + plan.depth * width)


def lead(plan: Plan) -> tuple[int, int]:
    """How many elements ahead a tile fetches the column operand, and how many each step reads.

    The machine's own fetching does not run as far ahead as the way to the caches beyond the first is long. Zeros where
    several tiles read a panel, or the operand fits.
    """
    if not _streams(plan) or _tiles_of_panel(plan) != 1 or _column_bytes(plan) <= plan.machine.l1_bytes:
        return 0, 0
    chosen = plan.machine.chosen.lead_bytes
    ahead = LEAD_BYTES if chosen is None else chosen
    return ahead // element_bytes(plan.columns.access.element_type), _width(plan)


def _streams(plan: Plan) -> bool:
    """Whether the column operand lies in panels that are read from their first byte to the last."""
    inner = plan.reduce[-1] if plan.reduce else None
    if inner is None or not all(isinstance(axis.extent, int) for axis in (plan.lane_axis, *plan.reduce)):
        return False
    if not all(isinstance(dim, int) for dim in plan.columns.access.shape):
        return False
    is_panel = plan.columns.form.stride(inner) == _width(plan) and plan.lane_axis.extent <= plan.tile_columns
    return is_panel and plan.is_streamed and not plan.dot and not plan.unrolled


def _width(plan: Plan) -> int:
    """Elements of a panel for one step along the sum."""
    extent = plan.lane_axis.extent
    assert isinstance(extent, int)
    return extent * (1 if plan.group is None else plan.group.size)


def _tiles_of_panel(plan: Plan) -> Dim:
    """How many tiles read the same panel."""
    tiles = D.product([axis.extent for axis in plan.row_loops])
    return tiles * (D.ceildiv(plan.row_axis.extent, plan.tile_rows) if plan.row_axis is not None else 1)


def _column_bytes(plan: Plan) -> int:
    return prod(plan.columns.access.shape) * element_bytes(plan.columns.access.element_type)
