"""Cost model of a planned contraction: register tiles, and traffic from beyond the L2 cache."""

from __future__ import annotations

from dataclasses import replace

from mirlo.dialects.core import dims as D
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.schedule.contraction.choices import count_of, operand_bytes, resident_bytes, result_bytes
from mirlo.targets.llvm.schedule.contraction.orders import LoopOrder, other_orders
from mirlo.targets.llvm.schedule.contraction.register_tile import RegisterTilePlan
from mirlo.targets.llvm.schedule.contraction.tiles import tile_cycles
from mirlo.targets.llvm.schedule.cost import (
    COPY_BYTES_PER_CYCLE,
    EQUAL_ORDERS,
    MIN_ORDER_GAIN,
    STRIPE_BYTES_PER_CYCLE,
)


@dataclass(frozen=True)
class Traffic:
    """Bytes that a contraction reads, per K block and batch."""

    rows: float
    columns: float
    panel: float
    results: float


def expected_cycles(plan: RegisterTilePlan) -> float | None:
    """Estimate the cycles of one core for a contraction; None for dot products, which the model does not cover."""
    return None if plan.dot else sum(expected_parts(plan).values())


def expected_parts(plan: RegisterTilePlan) -> dict[str, float]:
    """Estimate the cycles of a contraction in register tiles, by what takes them."""
    return {**_parts(plan, plan.order_of_loops), "packing": _copied_bytes(plan) / COPY_BYTES_PER_CYCLE}


def _parts(plan: RegisterTilePlan, loops: LoopOrder) -> dict[str, float]:
    """Estimate the cycles of tiles, and of what comes from beyond the L2 cache and of results that go there."""
    parts = _parts_of_k(loops)
    problem = replace(plan.problem, depth=max(1, plan.problem.depth // parts))
    outer = count_of(plan.column_loops) * count_of(plan.row_loops)
    return {
        "register tiles": parts * outer * tile_cycles(plan.tile_rows, plan.tile_vectors, problem, plan.machine),
        "bytes from beyond the L2 cache": _bytes_beyond_l2(plan, loops) / plan.machine.l3_bytes_per_cycle,
        "results in stripes": _striped_bytes(plan, loops) / STRIPE_BYTES_PER_CYCLE,
    }


def _cycles(plan: RegisterTilePlan, loops: LoopOrder) -> float:
    return sum(_parts(plan, loops).values())


def fastest_order(plan: RegisterTilePlan) -> LoopOrder:
    """Return the order of the loops that the model expects to be fastest: panels outermost, or in blocks."""
    own = plan.order_of_loops
    if plan.dot:
        return own
    if plan.has_own_rows:
        # Each line of the rows is read for several rows of windows: soon, or while all of them are in the L2 cache.
        size = operand_bytes(plan.rows) + result_bytes(plan.contraction)
        return replace(own, rows_outside=size > resident_bytes(plan.machine))
    kept = resident_bytes(plan.machine)
    others = other_orders(plan.free, own, plan.row_axis, plan.tile_rows)
    if result_bytes(plan.contraction) > kept:
        # Partial sums would go beyond the L2 cache and return from there.
        others = [order for order in others if order.depth_axis is None]
    if operand_bytes(plan.columns) > kept or _batches(plan) > 1:
        # Panels that come from beyond it are prefetched only where each is read once. Blocks of rows are outside of
        # batches, whose panels are read for each block.
        others = [order for order in others if not order.is_reordered]
    if not others:
        return own
    costs = [_cycles(plan, order) for order in others]
    least, most = min(costs), (1 - MIN_ORDER_GAIN) * _cycles(plan, own)
    # Between equals, smaller blocks leave more room in the caches.
    close = (order for order, cost in zip(others, costs, strict=True) if cost <= least * EQUAL_ORDERS)
    return next(close) if least < most else own


def _parts_of_k(loops: LoopOrder) -> int:
    return 1 if loops.depth_axis is None else -(-D.estimate_dim(loops.depth_axis.extent) // loops.depth_block)


def _striped_bytes(plan: RegisterTilePlan, loops: LoopOrder) -> float:
    """Return the bytes of results beyond the L2 cache that are written in stripes, a panel after the other."""
    if _panels(plan) == 1 or loops.is_reordered:
        return 0.0
    size = result_bytes(plan.contraction)
    return size if size / _batches(plan) > resident_bytes(plan.machine) else 0.0


def _bytes_beyond_l2(plan: RegisterTilePlan, loops: LoopOrder) -> float:
    """Return the bytes from beyond the L2 cache for an order of the loops."""
    parts = _parts_of_k(loops)
    kept = resident_bytes(plan.machine)
    batches, panels = _batches(plan), _panels(plan)
    traffic = _traffic(plan, batches * parts, panels)
    blocks = 1
    if loops.row_block and plan.row_axis is not None:
        blocks = -(-D.estimate_dim(plan.row_axis.extent) // loops.row_block)
    if loops.rows_outside and plan.free.swap:
        blocks *= count_of(plan.row_loops)
    rows_again = panels if traffic.rows / blocks + traffic.panel > kept else 1
    columns_again = blocks if traffic.columns > kept else 1
    is_near = traffic.results + traffic.rows + traffic.panel <= kept
    again = 2 * (parts - 1) / parts * traffic.results if parts > 1 and not is_near else 0.0
    return batches * parts * (traffic.rows * rows_again + traffic.columns * columns_again + again)


def _panels(plan: RegisterTilePlan) -> int:
    """Return the number of panels that are multiplied with the same rows; an axis counts them if they are packed."""
    packed = count_of(axis for axis in plan.column_loops if plan.rows.form.stride(axis) == 0)
    return max(1, packed * -(-D.estimate_dim(plan.lane_axis.extent) // plan.tile_columns))


def _batches(plan: RegisterTilePlan) -> int:
    """Return the number of products, each with rows and columns of its own."""
    return max(1, count_of(axis for axis in plan.column_loops if plan.rows.form.stride(axis) != 0))


def _traffic(plan: RegisterTilePlan, divided: int, panels: int) -> Traffic:
    rows, columns = min(operand_bytes(plan.rows), _row_bytes(plan)), operand_bytes(plan.columns)
    _, access = plan.contraction.writes[0]
    results = 1
    for extent in access.shape:
        results *= D.estimate_dim(extent)
    batches = _batches(plan)
    return Traffic(rows / divided, columns / divided, columns / divided / panels, results * 4.0 / batches)


def _row_bytes(plan: RegisterTilePlan) -> float:
    """Return the bytes of all rows, each of which has all of K: with a stride, fewer than the operand has."""
    axes = [*plan.column_loops, *plan.row_loops, *([plan.row_axis] if plan.row_axis is not None else [])]
    count = count_of(axis for axis in (*axes, *plan.order) if plan.rows.form.stride(axis) != 0)
    return float(count * element_bytes(plan.rows.access.element_type))


def _copied_bytes(plan: RegisterTilePlan) -> float:
    """Return the bytes of panels that the kernel packs; constants are packed at compile time."""
    return operand_bytes(plan.columns) if plan.packing is not None and not plan.is_stored else 0.0
