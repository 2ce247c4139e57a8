"""What a planned contraction is expected to take: the register tiles, and what comes from beyond the second cache."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mirlo.dialects.core import dims as D
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.targets.llvm.schedule.contraction.choices import count_of
from mirlo.targets.llvm.schedule.contraction.plan import Plan
from mirlo.targets.llvm.schedule.contraction.sides import Side
from mirlo.targets.llvm.schedule.contraction.tiles import tile_cycles

FAR_BYTES_PER_CYCLE = 48.0
"""From beyond the second cache, of what is read ahead while the tiles compute."""
KEPT = 0.75
"""Share of the second cache that an operand may take and still be there when it is read again."""
COPY_BYTES_PER_CYCLE = 16.0
"""Of panels that the kernel copies before it reads them."""


@dataclass(frozen=True)
class Traffic:
    """Bytes that a contraction reads, per part of its sums and batch."""

    rows: float
    columns: float
    panel: float
    results: float


def expected_cycles(plan: Plan) -> float | None:
    """Cycles of one core for all of a contraction; None for what the model does not know: dot products."""
    if plan.dot:
        return None
    loops, machine = plan.order_of_loops, plan.machine
    parts = 1 if loops.depth_axis is None else -(-D.guess(loops.depth_axis.extent) // loops.depth_block)
    question = replace(plan.question, depth=max(1, plan.question.depth // parts))
    outer = count_of(plan.column_loops) * count_of(plan.row_loops)
    computing = parts * outer * tile_cycles(plan.tile_rows, plan.tile_vectors, question, machine)
    return computing + _far_bytes(plan, parts) / FAR_BYTES_PER_CYCLE + _copied_bytes(plan) / COPY_BYTES_PER_CYCLE


def _far_bytes(plan: Plan, parts: int) -> float:
    """Bytes that come from beyond the second cache, by the order of the loops."""
    kept = KEPT * plan.machine.l2_bytes
    batches = max(1, count_of(plan.column_loops))
    panels = max(1, -(-D.guess(plan.lane_axis.extent) // plan.tile_columns))
    traffic = _traffic(plan, batches * parts, panels)
    loops = plan.order_of_loops
    blocks = 1
    if loops.row_block and plan.row_axis is not None:
        blocks = -(-D.guess(plan.row_axis.extent) // loops.row_block)
    if loops.rows_outside and plan.free.swap:
        blocks *= count_of(plan.row_loops)
    rows_again = panels if traffic.rows / blocks + traffic.panel > kept else 1
    columns_again = blocks if traffic.columns > kept else 1
    again = 2 * (parts - 1) / parts * traffic.results if parts > 1 else 0.0
    return batches * parts * (traffic.rows * rows_again + traffic.columns * columns_again + again)


def _traffic(plan: Plan, divided: int, panels: int) -> Traffic:
    rows, columns = _bytes(plan.rows), _bytes(plan.columns)
    _, access = plan.contraction.writes[0]
    results = 1
    for extent in access.shape:
        results *= D.guess(extent)
    batches = max(1, count_of(plan.column_loops))
    return Traffic(rows / divided, columns / divided, columns / divided / panels, results * 4.0 / batches)


def _bytes(side: Side) -> float:
    total = element_bytes(side.access.element_type)
    for extent in side.padded_shape or side.access.shape:
        total *= D.guess(extent)
    return float(total)


def _copied_bytes(plan: Plan) -> float:
    """Bytes of panels that the kernel makes itself: those of constants are made once."""
    return _bytes(plan.columns) if plan.packing is not None and not plan.is_stored else 0.0
