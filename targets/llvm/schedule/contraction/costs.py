"""Cost model of a planned contraction: register tiles, and traffic from beyond the L2 cache."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mirlo.dialects.core import dims as D
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.targets.llvm.schedule.contraction.choices import count_of
from mirlo.targets.llvm.schedule.contraction.operands import ContractionOperand
from mirlo.targets.llvm.schedule.contraction.register_tile import RegisterTilePlan
from mirlo.targets.llvm.schedule.contraction.tiles import tile_cycles
from mirlo.targets.llvm.schedule.cost import COPY_BYTES_PER_CYCLE, L2_RESIDENT_SHARE, L3_BYTES_PER_CYCLE


@dataclass(frozen=True)
class Traffic:
    """Bytes that a contraction reads, per K block and batch."""

    rows: float
    columns: float
    panel: float
    results: float


def expected_cycles(plan: RegisterTilePlan) -> float | None:
    """Estimate the cycles of one core for a contraction; None for dot products, which the model does not cover."""
    if plan.dot:
        return None
    loops, machine = plan.order_of_loops, plan.machine
    parts = 1 if loops.depth_axis is None else -(-D.estimate_dim(loops.depth_axis.extent) // loops.depth_block)
    problem = replace(plan.problem, depth=max(1, plan.problem.depth // parts))
    outer = count_of(plan.column_loops) * count_of(plan.row_loops)
    computing = parts * outer * tile_cycles(plan.tile_rows, plan.tile_vectors, problem, machine)
    return computing + _bytes_beyond_l2(plan, parts) / L3_BYTES_PER_CYCLE + _copied_bytes(plan) / COPY_BYTES_PER_CYCLE


def _bytes_beyond_l2(plan: RegisterTilePlan, parts: int) -> float:
    """Return the bytes from beyond the L2 cache for the order of the loops."""
    kept = L2_RESIDENT_SHARE * plan.machine.l2_bytes
    batches = max(1, count_of(plan.column_loops))
    panels = max(1, -(-D.estimate_dim(plan.lane_axis.extent) // plan.tile_columns))
    traffic = _traffic(plan, batches * parts, panels)
    loops = plan.order_of_loops
    blocks = 1
    if loops.row_block and plan.row_axis is not None:
        blocks = -(-D.estimate_dim(plan.row_axis.extent) // loops.row_block)
    if loops.rows_outside and plan.free.swap:
        blocks *= count_of(plan.row_loops)
    rows_again = panels if traffic.rows / blocks + traffic.panel > kept else 1
    columns_again = blocks if traffic.columns > kept else 1
    again = 2 * (parts - 1) / parts * traffic.results if parts > 1 else 0.0
    return batches * parts * (traffic.rows * rows_again + traffic.columns * columns_again + again)


def _traffic(plan: RegisterTilePlan, divided: int, panels: int) -> Traffic:
    rows, columns = _bytes(plan.rows), _bytes(plan.columns)
    _, access = plan.contraction.writes[0]
    results = 1
    for extent in access.shape:
        results *= D.estimate_dim(extent)
    batches = max(1, count_of(plan.column_loops))
    return Traffic(rows / divided, columns / divided, columns / divided / panels, results * 4.0 / batches)


def _bytes(side: ContractionOperand) -> float:
    total = element_bytes(side.access.element_type)
    for extent in side.padded_shape or side.access.shape:
        total *= D.estimate_dim(extent)
    return float(total)


def _copied_bytes(plan: RegisterTilePlan) -> float:
    """Return the bytes of panels that the kernel packs; constants are packed at compile time."""
    return _bytes(plan.columns) if plan.packing is not None and not plan.is_stored else 0.0
