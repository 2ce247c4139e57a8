"""The choices for convolutions of target `llvm`, and the cycles that its machine model expects of choices.

The choices for kernels are declared by the rules that schedule them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import PrimView
from mirlo.passes.figures import ComparedChoice, KernelExpectation
from mirlo.passes.rule_choices import bind_choices, tuning_point
from mirlo.passes.rules import Decline
from mirlo.passes.schedule.blocks.group import unfit
from mirlo.targets.llvm.choices import ContractionChoices, ConvolutionChoices
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.options import machine_for, threads_of
from mirlo.targets.llvm.schedule.contraction.costs import expected_cycles, expected_parts
from mirlo.targets.llvm.schedule.contraction.space import product_plan
from mirlo.targets.llvm.schedule.contraction.tiles import TileEstimate, considered_tiles, register_need
from mirlo.targets.llvm.winograd import ConvolutionView
from mirlo.targets.llvm.winograd.convert import find_strategies

if TYPE_CHECKING:
    from mirlo.passes.targets import CompileOptions

CONV = "relax.conv"
"""The operator with several strategies."""


def space(op: ir.Operation | ir.OpView, options: CompileOptions | None = None) -> list[dict[str, int]]:
    """Return the tuning space of a convolution, before it is a prim function; empty if there are no choices."""
    return _of_convolutions(op, machine_for(options)) if op.operation.name == CONV else []


def expected(
    function: ir.Operation | ir.OpView,
    values: Mapping[str, int],
    options: CompileOptions | None = None,
) -> float | None:
    """Estimate the cycles of a contraction with these choices by the machine model; None if it does not cover it."""
    if function.operation.name == CONV:
        return _cycles_of_convolution(function.operation, values, machine_for(options))
    view = PrimView(function)
    choices: ContractionChoices = bind_choices(ContractionChoices, values)
    if unfit(view) is not None or choices.lead_bytes is not None or choices.share is not None:
        return None
    plan = product_plan(view, machine_for(options), choices, threads_of(options))
    return None if isinstance(plan, Decline) else expected_cycles(plan)


def expectation(
    function: ir.Operation | ir.OpView, values: Mapping[str, int], options: CompileOptions | None = None
) -> KernelExpectation | None:
    """Return the machine model's expectation of a contraction with these choices; None if it does not cover it.

    Candidates are the tiles that `choose_tile` compares, by the cycles of all tiles of one axis of rows.
    """
    view = PrimView(function)
    if unfit(view) is not None:
        return None
    plan = product_plan(view, machine_for(options), bind_choices(ContractionChoices, values), threads_of(options))
    if isinstance(plan, Decline) or plan.tile.search is None:
        return None
    search, parts = plan.tile.search, expected_parts(plan)
    own = search.estimate(plan.tile.rows, plan.tile.vectors)
    others = sorted(considered_tiles(search.problem, search.machine), key=lambda tile: tile.cycles)

    def candidate(tile: TileEstimate) -> ComparedChoice:
        need = register_need(tile.rows, tile.vectors, search.problem, search.machine)
        limit = f"{search.limit(tile)}; {need} of {search.machine.vector_registers} registers"
        tile_values = tuning_point(ContractionChoices(tile.rows, tile.vectors))
        return ComparedChoice(tile_values, tile.cycles, limit, search.parts(tile))

    candidates = tuple(map(candidate, [own, *(tile for tile in others if tile != own)]))
    return KernelExpectation(sum(parts.values()), "cycles", parts, "register tiles", candidates)


def _of_convolutions(op: ir.Operation | ir.OpView, machine: Machine) -> list[dict[str, int]]:
    """Return the tile sizes of Winograd's algorithm that apply, and 0 for direct convolution."""
    strategies = find_strategies(ConvolutionView.of(op.opview), machine)
    if isinstance(strategies, Decline):
        return []
    return [tuning_point(ConvolutionChoices(way.m)) for way in strategies.ordered if way.m != strategies.own.m]


def _cycles_of_convolution(op: ir.Operation | ir.OpView, values: Mapping[str, int], machine: Machine) -> float | None:
    strategies = find_strategies(ConvolutionView.of(op.opview), machine)
    if isinstance(strategies, Decline):
        return None
    chosen = bind_choices(ConvolutionChoices, values).winograd
    return next(way.cycles for way in strategies.ordered if way.m == (strategies.own.m if chosen is None else chosen))
