"""The tuning space of target `llvm`, and the cycles that the machine model expects of its points.

For contractions: register tile, order and blocking of the loops, what threads divide, packing or dot products, and
prefetch distance; for convolutions: Winograd's algorithm; for attention: the rows of a block; for all others: the
unroll factor in vectors, and the elements of a vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import static_dim
from mirlo.dialects.core.surgery import enclosing
from mirlo.dialects.tir.view import PrimView
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.rule_choices import bind_choices, tried_values, tuning_point
from mirlo.passes.rules import Decline
from mirlo.passes.schedule.blocks.group import BlockGroup, unfit
from mirlo.passes.schedule.stored import calls_of
from mirlo.targets.llvm.choices import (
    NO_CONTRACTION_CHOICES,
    BlockChoices,
    ContractionChoices,
    ConvolutionChoices,
    LoopChoices,
)
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.options import machine_for, threads_of
from mirlo.targets.llvm.schedule.cost import VECTOR_COUNTS

if TYPE_CHECKING:
    from mirlo.passes.targets import CompileOptions
    from mirlo.targets.llvm.schedule.contraction.register_tile import RegisterTilePlan

CONV = "relax.conv"
"""The operator with several strategies."""
CANDIDATES = 24
"""Most tiles offered for one kernel; the machine model orders them by expected time."""
K_SPLITS = (2, 3, 4)
MAX_DOT_ROWS = 64
"""Most rows for which dot products are worth a trial."""
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
        rows = {min(count, extent) for count in tried_values(BlockChoices, "block_rows")} - {block}
        return [tuning_point(BlockChoices(count)) for count in sorted(rows, key=lambda count: abs(count - block))]
    own = machine.lanes(F32_BYTES)
    points = [LoopChoices(unroll=(count,)) for count in tried_values(LoopChoices, "unroll")]
    return [tuning_point(choices) for choices in (*points, LoopChoices((own // 2,)), LoopChoices((2 * own,)))]


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
    choices: ContractionChoices = bind_choices(ContractionChoices, values)
    if unfit(view) is not None or choices.lead_bytes is not None or choices.share is not None:
        return None
    plan = _product_plan(view, machine_for(options), choices)
    return None if isinstance(plan, Decline) else expected_cycles(plan)


def _of_convolutions(op: ir.Operation | ir.OpView, machine: Machine) -> list[dict[str, int]]:
    """Return the tile sizes of Winograd's algorithm that apply, and 0 for direct convolution."""
    from mirlo.targets.llvm.winograd.convert import ConvolutionView, find_strategies

    strategies = find_strategies(ConvolutionView.of(op.opview), machine)
    if isinstance(strategies, Decline):
        return []
    return [tuning_point(ConvolutionChoices(way.m)) for way in strategies.ordered if way.m != strategies.own.m]


def _cycles_of_convolution(op: ir.Operation | ir.OpView, values: Mapping[str, int], machine: Machine) -> float | None:
    from mirlo.targets.llvm.winograd.convert import ConvolutionView, find_strategies

    strategies = find_strategies(ConvolutionView.of(op.opview), machine)
    if isinstance(strategies, Decline):
        return None
    chosen = bind_choices(ConvolutionChoices, values).winograd
    return next(way.cycles for way in strategies.ordered if way.m == (strategies.own.m if chosen is None else chosen))


def _product_plan(
    view: PrimView, machine: Machine, choices: ContractionChoices = NO_CONTRACTION_CHOICES
) -> RegisterTilePlan | Decline:
    from mirlo.targets.llvm.schedule.contraction.plan import plan_of

    return plan_of(view.blocks, frozenset(view.returned), machine, _constants(view), choices)


def _constants(view: PrimView) -> list[ir.Value]:
    """Return the parameters for which every call in the module passes a constant."""
    sites = calls_of(enclosing(view.op, "builtin.module")).get(view.name, [])
    constant = [all(is_constant(site.operands[i]) for site in sites) for i in range(len(view.arguments))]
    return [argument for argument, is_one in zip(view.arguments, constant, strict=True) if is_one and sites]


def _of_products(plan: RegisterTilePlan, machine: Machine, threads: int) -> list[dict[str, int]]:
    can_dot = plan.may_dot and count_of_rows(plan) <= MAX_DOT_ROWS
    dot = [ContractionChoices(dot=not plan.dot)] if can_dot else []
    if plan.dot:
        return [tuning_point(choices) for choices in dot]
    own = ContractionChoices(plan.tile_rows, plan.tile_vectors)
    packing = [replace(own, pack=plan.packing is None)] if plan.may_pack else []
    is_alone = plan.problem.rows <= plan.tile_rows
    leads = [ContractionChoices(lead_bytes=count) for count in _tried("lead_bytes")] if is_alone else []
    is_shared = threads > 1 and not plan.rows_first
    shares = [ContractionChoices(share=share) for share in _tried("share")] if is_shared else []
    points = [*packing, *leads, *dot, *shares, *_orders(plan), *_tiles(plan, machine)]
    return [tuning_point(choices) for choices in points]


def _tried(name: str) -> tuple[int, ...]:
    return tried_values(ContractionChoices, name)


def count_of_rows(plan: RegisterTilePlan) -> int:
    """Return the number of rows that read the same columns."""
    from mirlo.targets.llvm.schedule.contraction.choices import count_of

    return count_of(plan.row_loops) * plan.problem.rows


def _orders(plan: RegisterTilePlan) -> list[ContractionChoices]:
    """Return the loop orders, with the tile of the plan."""
    free = plan.free
    result = [ContractionChoices(rows_outside=True)] if free.swap else []
    if free.block_rows and plan.lane_axis.extent > plan.tile_columns:
        tiles = -(-plan.problem.rows // plan.tile_rows)
        result += [ContractionChoices(row_block=count) for count in _tried("row_block") if count < tiles]
    if free.depth_axis is not None:
        extent, blocks = free.depth_axis.extent, _tried("depth_block")
        parts = {count for count in blocks if count < extent} | {-(-extent // parts) for parts in K_SPLITS}
        result += [ContractionChoices(depth_block=count) for count in sorted(parts) if count >= min(blocks)]
    return result


def _tiles(plan: RegisterTilePlan, machine: Machine) -> list[ContractionChoices]:
    """Return register tiles, the fastest by the machine model first."""
    from mirlo.targets.llvm.schedule.contraction.tiles import register_need, tile_cycles

    problem = plan.problem
    tiles: list[tuple[float, ContractionChoices]] = []
    for vectors in VECTOR_COUNTS:
        for rows in range(1, min(problem.rows, machine.vector_registers) + 1):
            if vectors > -(-problem.columns // problem.lanes) or (rows, vectors) == (
                plan.tile_rows,
                plan.tile_vectors,
            ):
                continue
            if register_need(rows, vectors, problem, machine) > machine.vector_registers:
                continue
            tiles.append((tile_cycles(rows, vectors, problem, machine), ContractionChoices(rows, vectors)))
    return [choices for _, choices in sorted(tiles, key=lambda entry: entry[0])][:CANDIDATES]
