"""Choices for a contraction: lane and row axes, the register tile, packing, the order of the loops."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import prod

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.tir.view import BlockView
from mirlo.passes.rules import Decline, RuleError, deciding
from mirlo.passes.schedule.blocks.contraction.analysis import Contraction, analyze
from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis
from mirlo.passes.schedule.primitives.tile_instruction import kind_of
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.choices import NO_CONTRACTION_CHOICES, ContractionChoices
from mirlo.targets.llvm.machine import MAX_ACCUMULATORS, Machine
from mirlo.targets.llvm.schedule.contraction.choices import (
    choose_rows,
    count_of,
    dot_tile,
    is_short_dot,
    needs_packing,
    tile_request,
)
from mirlo.targets.llvm.schedule.contraction.costs import fastest_order
from mirlo.targets.llvm.schedule.contraction.groups import DotGroup
from mirlo.targets.llvm.schedule.contraction.operands import ContractionOperand
from mirlo.targets.llvm.schedule.contraction.orders import choose_order, freedom, keep_order_of_sum
from mirlo.targets.llvm.schedule.contraction.sides import (
    ContractionSides,
    PlanRequest,
    find_lanes,
    fuse_sum,
    sort_sides,
)
from mirlo.targets.llvm.schedule.contraction.sums import SumChoice, choose_sum
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import (
    ContractionRoles,
    LoopsAround,
    PanelPacking,
    RegisterTile,
    TiledContraction,
    tiles_at_edges,
)
from mirlo.targets.llvm.schedule.contraction.tiles import TileSearch
from mirlo.targets.llvm.schedule.cost import EDGE_TILES, MIN_ROWS_TO_EXTEND, MOST_TILES_THAT_WIDEN, UNROLL_TAPS


@dataclass(frozen=True)
class ChosenTile:
    """The choice of a register tile."""

    row_axis: BlockAxis | None
    rows: int
    vectors: int
    search: TileSearch | None
    """What it is the answer to; None for dot products, whose tiles are not compared."""


def plan_register_tile(contraction: Contraction, request: PlanRequest) -> TiledContraction | Decline:
    """Plan a contraction, or decline it for register tiles."""
    lanes = find_lanes(contraction)
    if isinstance(lanes, Decline):
        return lanes
    for allow_edge in (True, False):
        sides = sort_sides(contraction, lanes, allow_edge)
        if isinstance(sides, Decline):
            return sides
        plan = plan_sides(request, sides)
        edge = plan.roles.rows.edge
        # Tiles can skip products at their edges only along their rows, and only if the taps are unrolled.
        is_possible = edge is None or (plan.tile.row_axis == edge.position and edge.tap in plan.loops.unrolled)
        if is_possible and sum(is_edge for _, is_edge in tiles_at_edges(plan.roles.rows, plan.tile)) <= EDGE_TILES:
            break
    return plan


def plan_sides(request: PlanRequest, sides: ContractionSides) -> TiledContraction:
    """Choose the sum, the tile, the packing and the order of the loops, each with what was chosen before."""
    chosen = choose_sum(request, sides)
    tile = choose_register_tile(request, sides, chosen)
    packing = choose_packing(request, sides, chosen, tile)
    is_converted = converts_rows(sides, chosen, tile)
    sides = replace(sides, rows=replace(sides.rows, is_converted=is_converted))
    if chosen.grouped is not None:
        grouped = chosen.grouped
        reduce = grouped.reduce
        sides = replace(
            sides, rows=replace(sides.rows, form=grouped.rows), columns=replace(sides.columns, form=grouped.columns)
        )
    else:
        reduce, sides = fuse_sum(sides, chosen.order, packing.packs_panels)
    roles = ContractionRoles(sides.contraction, sides.rows, sides.columns, sides.lane_axis, chosen.order)
    own = register_tile(sides, chosen, tile)
    loops = loops_around(request, sides, chosen, own, packing, reduce)
    result = TiledContraction(request.machine, request.choices, roles, own, packing, loops)
    if request.choices.has_order:
        return result
    return replace(result, loops=replace(loops, order=fastest_order(result, request.threads)))


def choose_register_tile(request: PlanRequest, sides: ContractionSides, chosen: SumChoice) -> ChosenTile:
    """Choose the axis of the tile's rows, its rows, and its vectors of columns."""
    if chosen.dot is not None:
        lanes = chosen.problem.lanes
        return ChosenTile(*dot_tile(sides.shared, sides.lane_axis, chosen.order, lanes, chosen.machine), search=None)
    # Rows with column vectors of their own cannot share a packed panel.
    if chosen.group is not None:
        must_pack = not chosen.group.is_stored
    else:
        must_pack = sides.columns.form.stride(sides.lane_axis) not in (0, 1)
    candidates = row_candidates(sides, sides.shared or ([] if must_pack or sides.panels else sides.moving))
    tile = ChosenTile(
        *choose_rows(
            chosen.problem, candidates, sides.shared, sides.rows, chosen.order, chosen.machine, request.choices.tile
        )
    )
    if tile.rows * tile.vectors > MAX_ACCUMULATORS:
        raise RuleError(f"rule 'contraction': a tile of {tile.rows} x {tile.vectors} vectors is too large")
    return tile


def row_candidates(sides: ContractionSides, axes: Sequence[BlockAxis]) -> list[BlockAxis]:
    """Return the axes that the tile's rows may run along."""
    edge = sides.rows.edge
    if edge is not None:
        return [axis for axis in axes if axis.id == edge.position.id]
    guarded = {window.position.id for window in sides.rows.guards}
    return [axis for axis in axes if axis.id not in guarded]


def choose_packing(request: PlanRequest, sides: ContractionSides, chosen: SumChoice, tile: ChosenTile) -> PanelPacking:
    """Choose whether the kernel packs panels of columns."""
    columns, group = sides.columns, chosen.group
    is_cast = columns.needs_cast(sides.contraction.product.accumulate_type)
    is_stored = columns.access.value in request.constants
    if chosen.dot is not None:
        return PanelPacking(False, is_stored=is_stored)
    if group is not None:
        return PanelPacking(not group.is_stored or extends_panels(sides, group), is_stored=is_stored)
    is_cast &= not widens_in_tiles(sides, tile, chosen.machine)
    packs = needs_packing(
        columns, sides.lane_axis, chosen.order, count_of(sides.shared), tile.vectors * chosen.problem.lanes, is_cast,
        chosen.machine, request.choices.pack,
    )  # fmt: skip
    return PanelPacking(packs, columns.form.stride(sides.lane_axis) == 1 and not is_cast, is_stored)


def widens_in_tiles(sides: ContractionSides, tile: ChosenTile, machine: Machine) -> bool:
    """Return whether each tile widens the columns where it loads them, which takes one or two instructions for each.

    Columns that many rows are multiplied with are widened once, in the copy of a panel. A number of rows that the run
    time knows is taken as few: with those a copy takes longer than all products.
    """
    factor = sides.columns.factor
    is_plain = kind_of(factor) == str(sides.columns.access.element_type) and isinstance(
        sides.contraction.product.accumulate_type, ir.F32Type
    )
    has_f16 = machine.avx512 or machine.avx2
    narrow = (ir.BF16Type, ir.F16Type) if has_f16 else ir.BF16Type
    if not is_plain or not isinstance(sides.columns.access.element_type, narrow):
        return False
    rows = D.product([axis.extent for axis in sides.shared])
    return not isinstance(rows, int) or -(-rows // tile.rows) <= MOST_TILES_THAT_WIDEN


def extends_panels(sides: ContractionSides, group: DotGroup) -> bool:
    """Return whether a panel of stored int8 is extended in a copy, which many rows are multiplied with."""
    rows = prod(axis.extent if isinstance(axis.extent, int) else 0 for axis in sides.shared)
    return group.widens and rows >= MIN_ROWS_TO_EXTEND


def converts_rows(sides: ContractionSides, chosen: SumChoice, tile: ChosenTile) -> bool:
    """Return whether rows are converted once, before the tiles read them."""
    group, shared_rows = chosen.group, chosen.problem.shared_rows
    # A group that is widened in the tile takes four instructions, in a copy a seventh of three.
    if group is not None and group.widens and sides.is_fixed and shared_rows:
        return True
    width = tile.vectors * chosen.problem.lanes
    strides = map(sides.columns.form.stride, sides.others)
    is_reused = width < D.estimate_dim(sides.lane_axis.extent) or any(stride != 0 for stride in strides)
    # A tile converts elements one by one, a copy whole vectors of them.
    is_reused |= isinstance(sides.rows.access.element_type, (ir.F16Type, ir.BF16Type))
    if not (sides.is_fixed and chosen.dot is None and shared_rows and is_reused):
        return False
    if group is not None:
        return bool(group.flips or group.widens)
    return sides.rows.needs_cast(sides.contraction.product.accumulate_type)


def register_tile(sides: ContractionSides, chosen: SumChoice, tile: ChosenTile) -> RegisterTile:
    """Return the register tile, with what it was chosen for."""
    problem, axis, is_dot = chosen.problem, tile.row_axis, chosen.dot is not None
    return RegisterTile(
        axis, tile.rows, tile.vectors, problem.lanes,
        replace(problem, rows=1) if axis is None else tile_request(problem, axis, sides.rows, chosen.order),
        dot=is_dot, may_dot=chosen.may_dot, has_partial_sums=chosen.has_partial_sums,
        is_short=is_dot and is_short_dot(tile.rows, sides.lane_axis, chosen.order, problem.lanes),
        group=chosen.group, search=tile.search,
    )  # fmt: skip


def loops_around(
    request: PlanRequest,
    sides: ContractionSides,
    chosen: SumChoice,
    tile: RegisterTile,
    packing: PanelPacking,
    reduce: list[BlockAxis],
) -> LoopsAround:
    """Return the loops around the tiles, in the order that a caller requests as far as it is permitted."""
    problem, panels, row_axis = chosen.problem, sides.panels, tile.row_axis
    is_own = not tile.dot and not (problem.shared_columns and problem.shared_rows)
    rest = [axis for axis in sides.others if axis is not row_axis and axis not in panels] + panels
    rows = [axis for axis in rest if sides.columns.form.stride(axis) == 0]
    unrolled = unrolled_taps(sides.rows, reduce) if is_own else []
    is_plain = not tile.dot and tile.group is None and (not packing.packs_panels or packing.is_stored)
    free = freedom(sides.rows, sides.lane_axis, row_axis, rows, reduce, unrolled, is_plain=is_plain)
    if request.machine.invariant:
        free = keep_order_of_sum(free, reduce)
    has_own_rows = sides.rows.form.stride(sides.lane_axis) != 0 and not packing.packs_panels
    order = choose_order(request.choices, free, has_own_rows, row_axis, tile.rows)
    columns = tuple(axis for axis in rest if sides.columns.form.stride(axis) != 0)
    return LoopsAround(columns, tuple(rows), tuple(reduce), tuple(unrolled), order, free)


def unrolled_taps(rows: ContractionOperand, reduce: Sequence[BlockAxis]) -> list[BlockAxis]:
    """Return the innermost axes of the sum whose products have one piece of code."""
    guarded = {window.tap.id for window in rows.guards}
    result: list[BlockAxis] = []
    for axis in reversed(reduce):
        if axis.id in guarded or not isinstance(axis.extent, int):
            break
        if axis.extent * count_of(result) > UNROLL_TAPS:
            break
        result.insert(0, axis)
    return result


@deciding
def plan_of(
    blocks: Sequence[BlockView],
    kept: Collection[ir.Value],
    machine: Machine,
    constants: Collection[ir.Value] = (),
    choices: ContractionChoices = NO_CONTRACTION_CHOICES,
    threads: int = 1,
) -> TiledContraction | Decline:
    """Plan some blocks, the first of which is the contraction, in register tiles."""
    contraction = analyze(blocks, kept)
    if isinstance(contraction, Decline):
        return contraction
    return plan_register_tile(contraction, PlanRequest(machine, constants, choices, threads))
