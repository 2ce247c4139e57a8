"""Cost model of a planned contraction: register tiles, and traffic from beyond the L2 cache."""

from __future__ import annotations

from dataclasses import replace

from mirlo.dialects.core import dims as D
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.schedule.contraction.choices import count_of, operand_bytes, resident_bytes, result_bytes
from mirlo.targets.llvm.schedule.contraction.orders import LoopOrder, block_of_threads, other_orders
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import TiledContraction
from mirlo.targets.llvm.schedule.contraction.tiles import tile_cycles
from mirlo.targets.llvm.schedule.cost import (
    COPY_BYTES_PER_CYCLE,
    EQUAL_ORDERS,
    MAX_IMBALANCE,
    MAX_THREADS_OF_A_ROW,
    MIN_ORDER_GAIN,
    PREFETCHED_WHILE_COMPUTING,
    RELOADED_WINDOWS,
    STRIPE_BYTES_PER_CYCLE,
)


@dataclass(frozen=True)
class Traffic:
    """Bytes that a contraction reads, per K block and batch."""

    rows: float
    columns: float
    panel: float
    results: float


def expected_cycles(plan: TiledContraction) -> float | None:
    """Estimate the cycles of one core for a contraction; None for dot products, which the model does not cover."""
    return None if plan.tile.dot else sum(expected_parts(plan).values())


def expected_parts(plan: TiledContraction) -> dict[str, float]:
    """Estimate the cycles of a contraction in register tiles, by cause."""
    return {**_parts(plan, plan.loops.order), "packing": _copied_bytes(plan) / COPY_BYTES_PER_CYCLE}


def _parts(plan: TiledContraction, loops: LoopOrder) -> dict[str, float]:
    """Estimate the cycles of tiles, of reads from beyond the L2 cache, and of results that are written there."""
    parts = _parts_of_k(loops)
    problem = replace(plan.tile.problem, depth=max(1, plan.tile.problem.depth // parts))
    outer = count_of(plan.loops.columns) * count_of(plan.loops.rows)
    return {
        "register tiles": parts * outer * tile_cycles(plan.tile.rows, plan.tile.vectors, problem, plan.machine),
        "bytes from beyond the L2 cache": _bytes_beyond_l2(plan, loops) / plan.machine.l3_bytes_per_cycle,
        "results in stripes": _striped_bytes(plan, loops) / STRIPE_BYTES_PER_CYCLE,
    }


def _cycles(plan: TiledContraction, loops: LoopOrder, threads: int) -> float:
    """Estimate the cycles that all cores take together."""
    tiles, *others = _parts(plan, loops).values()
    return tiles * _imbalance(plan, loops, threads) + sum(others) + _exchange_cycles(plan, loops, threads)


def fastest_order(plan: TiledContraction, threads: int = 1) -> LoopOrder:
    """Return the order of the loops that the model expects to be fastest: panels outermost, or in blocks."""
    own = plan.loops.order
    if plan.tile.dot:
        return own
    if threads > MAX_THREADS_OF_A_ROW or not plan.machine.exchanged_bytes_per_cycle:
        threads = 1
    if plan.has_own_rows:
        # Each line of the rows is read for several rows of windows: soon, or while all of them are in the L2 cache.
        size = operand_bytes(plan.roles.rows) + result_bytes(plan.roles.contraction)
        return replace(own, rows_outside=size > resident_bytes(plan.machine) or _keeps_own_rows(plan, threads))
    kept = resident_bytes(plan.machine)
    others = other_orders(plan.loops.free, own, plan.tile.row_axis, plan.tile.rows)
    if result_bytes(plan.roles.contraction) > kept:
        # Partial sums would go beyond the L2 cache and return from there.
        others = [order for order in others if order.depth_axis is None]
    if operand_bytes(plan.roles.columns) > kept or _batches(plan) > 1:
        # Panels that come from beyond it are prefetched only where each is read once. Blocks of rows are outside of
        # batches, whose panels are read for each block.
        others = [order for order in others if not order.is_reordered]
    elif threads > 1 and _panels(plan) > 1:
        others += block_of_threads(plan.loops.free, own, plan.tile.row_axis, plan.tile.rows, threads)
    if not others:
        return own
    costs = [_cycles(plan, order, threads) for order in others]
    least, most = min(costs), (1 - MIN_ORDER_GAIN) * _cycles(plan, own, threads)
    # Between equals, smaller blocks leave more room in the caches.
    close = (order for order, cost in zip(others, costs, strict=True) if cost <= least * EQUAL_ORDERS)
    return next(close) if least < most else own


def _imbalance(plan: TiledContraction, loops: LoopOrder, threads: int) -> float:
    """Return the load of the thread with most rows relative to its share, where threads divide blocks of rows."""
    if threads == 1 or not loops.row_block or plan.tile.row_axis is None:
        return 1.0
    rows = D.estimate_dim(plan.tile.row_axis.extent)
    blocks = -(-rows // loops.row_block)
    return max(1.0, -(-blocks // threads) * loops.row_block * threads / rows)


def _exchange_cycles(plan: TiledContraction, loops: LoopOrder, threads: int) -> float:
    """Estimate the cycles of all threads for reads of data that others have written or also read.

    Where they divide panels each reads all rows, of which the threads of the kernel before wrote a part each, and
    leaves a part of the results to others. Where they divide rows each reads all panels, while it computes.
    """
    if threads == 1:
        return 0.0
    panels = operand_bytes(plan.roles.columns) / PREFETCHED_WHILE_COMPUTING
    tensors = operand_bytes(plan.roles.rows) + result_bytes(plan.roles.contraction)
    read = panels if loops.row_block and not plan.loops.rows else tensors
    return (threads - 1) * read / plan.machine.exchanged_bytes_per_cycle


def _keeps_own_rows(plan: TiledContraction, threads: int) -> bool:
    """Return whether threads divide the rows of a depthwise convolution, as the products around it."""
    if threads == 1 or not plan.loops.rows or not isinstance(plan.loops.rows[0].extent, int):
        return False
    lines = plan.loops.rows[0].extent
    longest = -(-lines // threads) * threads / lines
    cycles = sum(_parts(plan, plan.loops.order).values())
    saved = _exchange_cycles(plan, plan.loops.order, threads)
    return longest <= MAX_IMBALANCE and cycles * (RELOADED_WINDOWS * longest - 1) < saved


def _parts_of_k(loops: LoopOrder) -> int:
    return 1 if loops.depth_axis is None else -(-D.estimate_dim(loops.depth_axis.extent) // loops.depth_block)


def _striped_bytes(plan: TiledContraction, loops: LoopOrder) -> float:
    """Return the bytes of results beyond the L2 cache that are written in stripes, a panel after the other."""
    if _panels(plan) == 1 or loops.is_reordered:
        return 0.0
    size = result_bytes(plan.roles.contraction)
    return size if size / _batches(plan) > resident_bytes(plan.machine) else 0.0


def _bytes_beyond_l2(plan: TiledContraction, loops: LoopOrder) -> float:
    """Return the bytes from beyond the L2 cache for an order of the loops."""
    parts = _parts_of_k(loops)
    kept = resident_bytes(plan.machine)
    batches, panels = _batches(plan), _panels(plan)
    traffic = _traffic(plan, batches * parts, panels)
    blocks = 1
    if loops.row_block and plan.tile.row_axis is not None:
        blocks = -(-D.estimate_dim(plan.tile.row_axis.extent) // loops.row_block)
    if loops.rows_outside and plan.loops.free.swap:
        blocks *= count_of(plan.loops.rows)
    rows_again = panels if traffic.rows / blocks + traffic.panel > kept else 1
    columns_again = blocks if traffic.columns > kept else 1
    is_near = traffic.results + traffic.rows + traffic.panel <= kept
    again = 2 * (parts - 1) / parts * traffic.results if parts > 1 and not is_near else 0.0
    return batches * parts * (traffic.rows * rows_again + traffic.columns * columns_again + again)


def _panels(plan: TiledContraction) -> int:
    """Return the number of panels that are multiplied with the same rows; an axis counts them if they are packed."""
    packed = count_of(axis for axis in plan.loops.columns if plan.roles.rows.form.stride(axis) == 0)
    return max(1, packed * -(-D.estimate_dim(plan.roles.lane_axis.extent) // plan.tile.columns))


def _batches(plan: TiledContraction) -> int:
    """Return the number of products, each with rows and columns of its own."""
    return max(1, count_of(axis for axis in plan.loops.columns if plan.roles.rows.form.stride(axis) != 0))


def _traffic(plan: TiledContraction, divided: int, panels: int) -> Traffic:
    rows, columns = min(operand_bytes(plan.roles.rows), _row_bytes(plan)), operand_bytes(plan.roles.columns)
    _, access = plan.roles.contraction.writes[0]
    results = 1
    for extent in access.shape:
        results *= D.estimate_dim(extent)
    batches = _batches(plan)
    return Traffic(rows / divided, columns / divided, columns / divided / panels, results * 4.0 / batches)


def _row_bytes(plan: TiledContraction) -> float:
    """Return the bytes of all rows, each of which has all of K: with a stride, fewer than the operand has."""
    axes = [*plan.loops.columns, *plan.loops.rows, *([plan.tile.row_axis] if plan.tile.row_axis is not None else [])]
    count = count_of(axis for axis in (*axes, *plan.roles.order) if plan.roles.rows.form.stride(axis) != 0)
    return float(count * element_bytes(plan.roles.rows.access.element_type))


def _copied_bytes(plan: TiledContraction) -> float:
    """Return the bytes of panels that the kernel packs; constants are packed at compile time."""
    return operand_bytes(plan.roles.columns) if plan.packing.packs_panels and not plan.packing.is_stored else 0.0
