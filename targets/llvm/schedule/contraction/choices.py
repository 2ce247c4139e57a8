"""Choices of a plan: the tile's rows, dot products or panels, packing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod

from mirlo.dialects.core import dims as D
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.schedule.blocks.contraction.analysis import Contraction
from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis
from mirlo.targets.llvm.machine import MAX_ACCUMULATORS, Machine
from mirlo.targets.llvm.schedule.contraction.operands import ContractionOperand
from mirlo.targets.llvm.schedule.contraction.tiles import TileProblem, TileSearch, choose_tile
from mirlo.targets.llvm.schedule.cost import (
    L2_RESIDENT_SHARE,
    MAX_UNROLLED,
    MIN_TILE_ROWS,
    MIN_UNROLLED,
    OPEN_ROWS,
    PACK_FROM_ROWS,
    POURED_L2_PARTS,
    SHORT_K,
)


def count_of(axes: Iterable[BlockAxis]) -> int:
    """Return the iterations of some loops; an estimate if they are dynamic."""
    return prod(D.estimate_dim(axis.extent) for axis in axes)


def reread_bytes(rows: ContractionOperand, spatial: Iterable[BlockAxis]) -> int:
    """Return the bytes of the row operand; 0 if it is much larger than the output, so that most of it is read once."""
    elements = prod(D.estimate_dim(extent) for extent in rows.access.shape)
    if elements > 2 * count_of(spatial):
        return 0
    return elements * element_bytes(rows.access.element_type)


def operand_bytes(side: ContractionOperand) -> float:
    """Return the bytes of an operand, with its padding."""
    total = element_bytes(side.access.element_type)
    for extent in side.padded_shape or side.access.shape:
        total *= D.estimate_dim(extent)
    return float(total)


def result_bytes(contraction: Contraction) -> float:
    """Return the bytes of the results, and of operands of the epilogue that are as large."""
    _, result = contraction.writes[0]
    least = prod(map(D.estimate_dim, result.shape))
    reads = [each for stage in contraction.stages for each in stage.reads if each is not None]
    counts = [(prod(map(D.estimate_dim, each.shape)), each.element_type) for each in (result, *reads)]
    return float(sum(count * element_bytes(kind) for count, kind in counts if count >= least))


def resident_bytes(machine: Machine) -> float:
    """Return the bytes that stay in the L2 cache until they are read again."""
    return L2_RESIDENT_SHARE * machine.l2_bytes


def panel_pixels(
    contraction: Contraction, rows: ContractionOperand, columns: ContractionOperand, machine: Machine
) -> int:
    """Return the pixels that a panel with rows of its own passes; 0 if the loops over rows are outside of panels."""
    if operand_bytes(rows) + result_bytes(contraction) > resident_bytes(machine):
        return 0
    channels = count_of(axis for axis in contraction.spatial if columns.form.stride(axis) != 0)
    elements = prod(D.estimate_dim(extent) for extent in rows.access.shape)
    return (elements + count_of(contraction.spatial)) // channels


def tile_request(
    problem: TileProblem, axis: BlockAxis, side: ContractionOperand, reduce: Iterable[BlockAxis]
) -> TileProblem:
    """Return the tile request for rows along an axis; a dynamic number of rows has extra tiles for few rows."""
    rows = axis.extent if isinstance(axis.extent, int) else max(D.estimate_dim(axis.extent), OPEN_ROWS)
    stride = D.estimate_dim(side.form.stride(axis))
    request = replace(problem, rows=rows, row_step=stride * element_bytes(side.access.element_type))
    for tap in reduce:
        step = D.estimate_dim(side.form.stride(tap))
        if not problem.shared_rows and step > 0 and stride % step == 0 and isinstance(tap.extent, int):
            return replace(request, taps=tap.extent, tap_stride=stride // step)
    return request


def choose_rows(
    problem: TileProblem,
    candidates: list[BlockAxis],
    shared: Sequence[BlockAxis],
    side: ContractionOperand,
    reduce: Sequence[BlockAxis],
    machine: Machine,
    tile: tuple[int, int] | None,
) -> tuple[BlockAxis | None, int, int, TileSearch]:
    """Choose the axis of the tile's rows, and the size of the tile unless it is chosen; return the request too.

    All rows along the `shared` axes are multiplied with the same columns.
    """
    if not candidates:
        rows, vectors, _ = choose_tile(problem, machine, tile)
        return None, rows, vectors, TileSearch(problem, machine)
    best = None
    far = rows_from_beyond_l2(problem, shared, side, machine)
    count = count_of(axis for axis in shared if side.form.stride(axis) != 0)
    # Innermost first: between equals, its rows are closest in memory.
    for axis in reversed(_candidate_row_axes(candidates)):
        problem_of_axis = tile_request(problem, axis, side, reduce)
        if far:
            problem_of_axis = replace(problem_of_axis, reread_bytes=far * problem_of_axis.rows // max(1, count))
        rows, vectors, cycles = choose_tile(problem_of_axis, machine, tile)
        cycles /= problem_of_axis.rows
        if best is None or cycles < best[0] * 0.98:
            best = (cycles, axis, rows, vectors, TileSearch(problem_of_axis, machine))
    assert best is not None
    return best[1:]


def rows_from_beyond_l2(
    problem: TileProblem, shared: Sequence[BlockAxis], side: ContractionOperand, machine: Machine
) -> int:
    """Return the bytes of the rows that a panel is multiplied with if they do not stay in the L2 cache, else 0.

    Rows of windows overlap: most elements that a tile reads are in the cache from the tile before.
    """
    count = count_of(axis for axis in shared if side.form.stride(axis) != 0) * problem.depth
    size = prod(D.estimate_dim(extent) for extent in side.padded_shape or side.access.shape)
    if not (problem.shared_rows and problem.shared_columns) or count > 2 * size:
        return 0
    total = min(count, size) * element_bytes(side.access.element_type)
    return total if total > resident_bytes(machine) else 0


def _candidate_row_axes(candidates: list[BlockAxis]) -> list[BlockAxis]:
    """Return the axes with enough rows, if any have a static extent; otherwise also the innermost dynamic one.

    An outer dynamic axis, the batch, may have a single row at run time.
    """
    known = [axis for axis in candidates if isinstance(axis.extent, int)]
    if any(axis.extent >= MIN_TILE_ROWS for axis in known):
        return known
    inner = [axis for axis in candidates if not isinstance(axis.extent, int)][-1:]
    return [axis for axis in candidates if axis in known or axis in inner]


def contiguous_sum(
    rows: ContractionOperand, columns: ContractionOperand, order: Sequence[BlockAxis]
) -> BlockAxis | None:
    """Return the reduction axis along which both operands are contiguous."""
    return next((a for a in order if rows.form.stride(a) == 1 and columns.form.stride(a) == 1), None)


def dot_tile(
    candidates: Sequence[BlockAxis], lane_axis: BlockAxis, order: Sequence[BlockAxis], lanes: int, machine: Machine
) -> tuple[BlockAxis | None, int, int]:
    """Return the axis of the rows, and the rows and columns of a tile of dot products."""
    row_axis = max(candidates, key=lambda axis: D.estimate_dim(axis.extent), default=None)
    rows = min(D.estimate_dim(row_axis.extent), 4) if row_axis is not None else 1
    if is_short_dot(rows, lane_axis, order, lanes):
        return row_axis, rows, lanes
    fitting = (c for c in (8, 4, 2, 1) if rows * c + rows + 1 <= machine.vector_registers)
    columns = next(fitting, 1)
    return row_axis, rows, min(columns, lane_axis.extent) if isinstance(lane_axis.extent, int) else columns


def is_short_dot(rows: int, lane_axis: BlockAxis, order: Sequence[BlockAxis], lanes: int) -> bool:
    """Return whether tiles of dot products read a column after the other, with code for all of K."""
    width, depth = lane_axis.extent, order[-1].extent
    if len(order) != 1 or not isinstance(depth, int) or (isinstance(width, int) and width < lanes):
        return False
    if lanes == 1 or lanes & (lanes - 1) or rows * lanes > MAX_ACCUMULATORS:
        return False
    return MIN_UNROLLED <= rows * -(-depth // lanes) <= MAX_UNROLLED


def has_large_output(
    contraction: Contraction, rows: ContractionOperand, columns: ContractionOperand, machine: Machine
) -> bool:
    """Return whether a product has a small K and an output that fills much of the L2 cache.

    Scores of attention with dynamic sizes, which are a batch of products, are computed in blocks that stay there.
    """
    is_batch = any(rows.form.stride(axis) != 0 != columns.form.stride(axis) for axis in contraction.spatial)
    fixed = contraction.axes if is_batch else contraction.reduce
    if not all(isinstance(axis.extent, int) for axis in fixed) or count_of(contraction.reduce) > SHORT_K:
        return False
    results = count_of(contraction.spatial) * element_bytes(contraction.product.accumulate_type)
    return results > machine.l2_bytes // POURED_L2_PARTS


def needs_packing(
    columns: ContractionOperand,
    lane_axis: BlockAxis,
    order: Sequence[BlockAxis],
    reuse: int,
    width: int,
    is_cast: bool,
    machine: Machine,
    chosen: bool | None,
) -> bool:
    """Return whether the kernel packs each panel of the column operand before use, as is `chosen` if it can.

    Columns with `is_cast` are converted in the copy.
    """
    if columns.form.stride(lane_axis) != 1:
        return bool(columns.form.stride(lane_axis) != 0)
    if chosen is not None and not is_cast:
        return chosen
    size = element_bytes(columns.access.element_type)
    if reuse < PACK_FROM_ROWS:
        return False
    footprint = count_of(order) * D.estimate_dim(lane_axis.extent) * size
    if footprint <= machine.l1_bytes // 2 and not is_cast:
        return False
    innermost = order[-1] if order else None
    dense = innermost is not None and D.estimate_dim(columns.form.stride(innermost)) <= width
    return is_cast or not dense
