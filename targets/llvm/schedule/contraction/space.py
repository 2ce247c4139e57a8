"""The tuning space of contractions: register tiles, orders of the loops, packing, dot products, threads."""

from __future__ import annotations

from dataclasses import replace

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import enclosing
from mirlo.dialects.tir.view import PrimView
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.rule_choices import tried_values, tuning_point
from mirlo.passes.rules import Decline
from mirlo.passes.schedule.kernel import Kernel, ScheduleContext
from mirlo.passes.schedule.stored import calls_of
from mirlo.targets.llvm.choices import NO_CONTRACTION_CHOICES, ContractionChoices
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.options import find_machine
from mirlo.targets.llvm.schedule.contraction.choices import count_of
from mirlo.targets.llvm.schedule.contraction.plan import plan_of
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import TiledContraction
from mirlo.targets.llvm.schedule.contraction.tiles import register_need, tile_cycles
from mirlo.targets.llvm.schedule.cost import K_SPLITS, MAX_DOT_ROWS, MAX_MEASURED_TILES, VECTOR_COUNTS


def product_space(kernel: Kernel, context: ScheduleContext) -> list[dict[str, int]]:
    """Return the points to measure for a contraction, the fastest tiles by the machine model first."""
    machine = find_machine(context.options.get("machine"))
    threads: int = context.options.get("threads", 1)
    plan = product_plan(kernel.view, machine, threads=threads)
    return [] if isinstance(plan, Decline) else _of_products(plan, machine, threads)


def product_plan(
    view: PrimView, machine: Machine, choices: ContractionChoices = NO_CONTRACTION_CHOICES, threads: int = 1
) -> TiledContraction | Decline:
    """Return the plan of a function that is a contraction, before its constant operands are packed."""
    return plan_of(view.blocks, frozenset(view.returned), machine, _constants(view), choices, threads)


def _constants(view: PrimView) -> list[ir.Value]:
    """Return the parameters for which every call in the module passes a constant."""
    sites = calls_of(enclosing(view.op, "builtin.module")).get(view.name, [])
    constant = [all(is_constant(site.operands[i]) for site in sites) for i in range(len(view.arguments))]
    return [argument for argument, is_one in zip(view.arguments, constant, strict=True) if is_one and sites]


def _of_products(plan: TiledContraction, machine: Machine, threads: int) -> list[dict[str, int]]:
    can_dot = plan.tile.may_dot and _count_of_rows(plan) <= MAX_DOT_ROWS
    dot = [ContractionChoices(dot=not plan.tile.dot)] if can_dot else []
    if plan.tile.dot:
        return [tuning_point(choices) for choices in dot]
    own = ContractionChoices(plan.tile.rows, plan.tile.vectors)
    packing = [replace(own, pack=not plan.packing.packs_panels)] if plan.packing.is_optional else []
    is_alone = plan.tile.problem.rows <= plan.tile.rows
    leads = [ContractionChoices(lead_bytes=count) for count in _tried("lead_bytes")] if is_alone else []
    is_shared = threads > 1 and not plan.loops.order.rows_outside
    shares = [ContractionChoices(share=share) for share in _tried("share")] if is_shared else []
    points = [*packing, *leads, *dot, *shares, *_orders(plan), *_tiles(plan, machine)]
    return [tuning_point(choices) for choices in points]


def _tried(name: str) -> tuple[int, ...]:
    return tried_values(ContractionChoices, name)


def _count_of_rows(plan: TiledContraction) -> int:
    """Return the number of rows that read the same columns."""
    return count_of(plan.loops.rows) * plan.tile.problem.rows


def _orders(plan: TiledContraction) -> list[ContractionChoices]:
    """Return the loop orders, with the tile of the plan."""
    free = plan.loops.free
    result = [ContractionChoices(rows_outside=True)] if free.swap else []
    if free.block_rows and plan.roles.lane_axis.extent > plan.tile.columns:
        tiles = -(-plan.tile.problem.rows // plan.tile.rows)
        result += [ContractionChoices(row_block=count) for count in _tried("row_block") if count < tiles]
    if free.depth_axis is not None:
        extent, blocks = free.depth_axis.extent, _tried("depth_block")
        parts = {count for count in blocks if count < extent} | {-(-extent // parts) for parts in K_SPLITS}
        result += [ContractionChoices(depth_block=count) for count in sorted(parts) if count >= min(blocks)]
    return result


def _tiles(plan: TiledContraction, machine: Machine) -> list[ContractionChoices]:
    """Return register tiles, the fastest by the machine model first."""
    problem = plan.tile.problem
    tiles: list[tuple[float, ContractionChoices]] = []
    for vectors in VECTOR_COUNTS:
        for rows in range(1, min(problem.rows, machine.vector_registers) + 1):
            if vectors > -(-problem.columns // problem.lanes) or (rows, vectors) == (
                plan.tile.rows,
                plan.tile.vectors,
            ):
                continue
            if register_need(rows, vectors, problem, machine) > machine.vector_registers:
                continue
            tiles.append((tile_cycles(rows, vectors, problem, machine), ContractionChoices(rows, vectors)))
    return [choices for _, choices in sorted(tiles, key=lambda entry: entry[0])][:MAX_MEASURED_TILES]
