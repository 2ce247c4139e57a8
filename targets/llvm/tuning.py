"""The tuning space of target `llvm`, and the cycles that the machine model expects of its points.

For contractions: register tile, order and blocking of the loops, what threads divide, packing or dot products, and
prefetch distance; for convolutions: Winograd's algorithm; for attention: the rows of a block; for all others: the
unroll factor in vectors, and the elements of a vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import static_dim
from mirlo.dialects.core.surgery import enclosing
from mirlo.dialects.tir.view import PrimView
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.rules import Decline
from mirlo.passes.schedule.blocks.group import BlockGroup, unfit
from mirlo.passes.schedule.stored import calls_of
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.options import machine_for, threads_of
from mirlo.targets.llvm.tuned_machine import (
    BLOCK,
    DEPTH_BLOCK,
    DOT,
    LANES,
    LEAD,
    OUTSIDE,
    PACK,
    ROW_BLOCK,
    ROWS,
    SHARE,
    UNROLL,
    VECTORS,
    with_choices,
)

if TYPE_CHECKING:
    from mirlo.passes.targets import CompileOptions
    from mirlo.targets.llvm.schedule.contraction.register_tile import RegisterTilePlan

CONV = "relax.conv"
"""The operator with several strategies."""
CANDIDATES = 24
"""Most tiles offered for one kernel; the machine model orders them by expected time."""
LEADS = (0, 2048, 8192)
ROW_BLOCKS = (1, 2, 4, 8)
DEPTH_BLOCKS = (256, 512, 1024)
K_SPLITS = (2, 3, 4)
MAX_DOT_ROWS = 64
"""Most rows for which dot products are worth a trial."""
BLOCKS = (16, 32, 64, 96, 128, 192, 256, 512)
UNROLLS = (1, 2, 4, 8)
F32_BYTES = 4
"""Bytes of the elements that lanes are offered for: half of a vector, and two."""


def space(function: ir.Operation | ir.OpView, options: CompileOptions | None = None) -> list[dict[str, int]]:
    """Return the tuning space of a prim function in tensor form, or of a convolution; empty if there are no choices."""
    from mirlo.targets.llvm.schedule.blocked import plan_blocked

    machine = machine_for(options)
    if function.operation.name == CONV:
        return _of_convolutions(function.operation, machine)
    view = PrimView(function)
    if unfit(view) is not None:
        return []
    plan = _product_plan(view, machine)
    if not isinstance(plan, Decline):
        return _of_products(plan, machine, threads_of(options))
    blocked = plan_blocked(view, BlockGroup(tuple(view.blocks), frozenset(view.returned), machine))
    if not isinstance(blocked, Decline):
        extent, block = static_dim(blocked.extent), static_dim(blocked.block)
        rows = {min(count, extent) for count in BLOCKS} - {block}
        return [{BLOCK: count} for count in sorted(rows, key=lambda count: abs(count - block))]
    own = machine.lanes(F32_BYTES)
    return [{UNROLL: count} for count in UNROLLS] + [{LANES: count} for count in (own // 2, 2 * own)]


def expected(
    function: ir.Operation | ir.OpView,
    values: Mapping[str, int],
    options: CompileOptions | tuple[str, ...] | None = None,
) -> float | None:
    """Estimate the cycles of a contraction with these choices by the machine model; None if it does not cover it."""
    from mirlo.targets.llvm.schedule.contraction.costs import expected_cycles

    if function.operation.name == CONV:
        return _cycles_of_convolution(function.operation, values, machine_for(options))
    view = PrimView(function)
    if unfit(view) is not None or {LEAD, SHARE} & set(values):
        return None
    plan = _product_plan(view, with_choices(machine_for(options), values))
    return None if isinstance(plan, Decline) else expected_cycles(plan)


def _of_convolutions(op: ir.Operation | ir.OpView, machine: Machine) -> list[dict[str, int]]:
    """Return the tile sizes of Winograd's algorithm that apply, and 0 for direct convolution."""
    from mirlo.targets.llvm.winograd.convert import WINOGRAD, find_strategies

    strategies = find_strategies(op.opview, machine)
    if isinstance(strategies, Decline):
        return []
    return [{WINOGRAD: way.m} for way in strategies.ordered if way.m != strategies.own.m]


def _cycles_of_convolution(op: ir.Operation | ir.OpView, values: Mapping[str, int], machine: Machine) -> float | None:
    from mirlo.targets.llvm.winograd.convert import WINOGRAD, find_strategies

    strategies = find_strategies(op.opview, machine)
    if isinstance(strategies, Decline):
        return None
    return next(way.cycles for way in strategies.ordered if way.m == values.get(WINOGRAD, strategies.own.m))


def _product_plan(view: PrimView, machine: Machine) -> RegisterTilePlan | Decline:
    from mirlo.targets.llvm.schedule.contraction.plan import plan_of

    return plan_of(view.blocks, frozenset(view.returned), machine, _constants(view))


def _constants(view: PrimView) -> list[ir.Value]:
    """Return the parameters for which every call in the module passes a constant."""
    sites = calls_of(enclosing(view.op, "builtin.module")).get(view.name, [])
    constant = [all(is_constant(site.operands[i]) for site in sites) for i in range(len(view.arguments))]
    return [argument for argument, is_one in zip(view.arguments, constant, strict=True) if is_one and sites]


def _of_products(plan: RegisterTilePlan, machine: Machine, threads: int) -> list[dict[str, int]]:
    dot = [{DOT: int(not plan.dot)}] if plan.may_dot and count_of_rows(plan) <= MAX_DOT_ROWS else []
    if plan.dot:
        return dot
    own = {ROWS: plan.tile_rows, VECTORS: plan.tile_vectors}
    packing = [{**own, PACK: int(plan.packing is None)}] if plan.may_pack else []
    leads = [{LEAD: count} for count in LEADS] if plan.problem.rows <= plan.tile_rows else []
    shares = [{SHARE: share} for share in range(3)] if threads > 1 and not plan.rows_first else []
    return packing + leads + dot + shares + _orders(plan) + _tiles(plan, machine)


def count_of_rows(plan: RegisterTilePlan) -> int:
    """Return the number of rows that read the same columns."""
    from mirlo.targets.llvm.schedule.contraction.choices import count_of

    return count_of(plan.row_loops) * plan.problem.rows


def _orders(plan: RegisterTilePlan) -> list[dict[str, int]]:
    """Return the loop orders, with the tile of the plan."""
    free = plan.free
    result = [{OUTSIDE: 1}] if free.swap else []
    if free.block_rows and plan.lane_axis.extent > plan.tile_columns:
        tiles = -(-plan.problem.rows // plan.tile_rows)
        result += [{ROW_BLOCK: count} for count in ROW_BLOCKS if count < tiles]
    if free.depth_axis is not None:
        extent = free.depth_axis.extent
        parts = {count for count in DEPTH_BLOCKS if count < extent} | {-(-extent // parts) for parts in K_SPLITS}
        result += [{DEPTH_BLOCK: count} for count in sorted(parts) if count >= min(DEPTH_BLOCKS)]
    return result


def _tiles(plan: RegisterTilePlan, machine: Machine) -> list[dict[str, int]]:
    """Return register tiles, the fastest by the machine model first."""
    from mirlo.targets.llvm.schedule.contraction.tiles import VECTOR_COUNTS, register_need, tile_cycles

    problem = plan.problem
    tiles: list[tuple[float, dict[str, int]]] = []
    for vectors in VECTOR_COUNTS:
        for rows in range(1, min(problem.rows, machine.vector_registers) + 1):
            if vectors > -(-problem.columns // problem.lanes) or (rows, vectors) == (
                plan.tile_rows,
                plan.tile_vectors,
            ):
                continue
            if register_need(rows, vectors, problem) > machine.vector_registers:
                continue
            tiles.append((tile_cycles(rows, vectors, problem, machine), {ROWS: rows, VECTORS: vectors}))
    return [values for _, values in sorted(tiles, key=lambda entry: entry[0])][:CANDIDATES]
