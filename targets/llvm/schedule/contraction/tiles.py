"""Sizes of register tiles, rows and vectors of accumulators, by a cost model of the machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product

from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.machine import COLUMNS_FROM_L2, LOADS, Machine
from mirlo.targets.llvm.schedule.cost import (
    BEYOND_L2_FACTOR,
    BEYOND_L2_VECTORS,
    EQUAL_TILES,
    ISSUED_PER_LOAD,
    L1_RESIDENT_SHARE,
    LATENCY_SLACK,
    LINE_BYTES,
    LINES_PER_FETCH,
    OVERLAPPED_STORES,
    STORE_CYCLES,
    TILE_OVERHEAD,
    VECTOR_COUNTS,
)


@dataclass(frozen=True)
class TileProblem:
    """The parameters of the choice of a tile."""

    rows: int
    """Extent of the axis of the tile's rows."""
    columns: int
    lanes: int
    depth: int
    """K: products that are summed for each element."""
    shared_columns: bool
    """Whether all rows multiply the same vectors (false for depthwise convolutions)."""
    shared_rows: bool
    """Whether all columns multiply the same row elements."""
    element_bytes: int
    row_bytes: int = 0
    """Bytes of the row operand if adjacent rows read the same elements of it; else 0."""
    has_large_output: bool = False
    """Whether K is small and the output exceeds the L2 cache."""
    row_step: int = 0
    """Stride in bytes between rows of the row operand; 0 if unknown."""
    row_pairs: bool = False
    """Whether an instruction multiplies two rows at once."""
    temporaries: int = 0
    """Registers for products that an instruction of their own adds to the accumulators."""
    reread_bytes: int = 0
    """Bytes of the rows that each panel of columns reads from beyond the L2 cache; 0 if they stay in it."""
    multiplications: int = 1
    """Instructions that multiply for each accumulator, in a k-step."""
    is_added: bool = False
    """Whether an instruction of its own adds to the accumulator."""
    has_partial_sums: bool = False
    """Whether each accumulator is two: a partial sum, and their total."""
    taps: int = 1
    """Elements of a window along the tile's rows, if adjacent rows share vectors of the row operand."""
    tap_stride: int = 1
    """Elements between the windows of adjacent rows."""
    panel_pixels: int = 0
    """Pixels, of input and output, that a panel of a depthwise convolution passes; 0 if it passes one row of them."""


def tile_ranges(extent: int, size: int) -> list[range]:
    """Divide an extent into tiles of this size, and one smaller tile for the rest; the step of a range is the size."""
    whole = extent // size * size
    whole_tiles = [range(0, whole, size)] if whole else []
    return whole_tiles + ([range(whole, extent, extent - whole)] if whole < extent else [])


def edge_ranges(extent: int, size: int, first: int, stop: int) -> list[tuple[range, bool]]:
    """Divide an extent into tiles; tiles that reach outside of `first .. stop - 1` are single ranges, and marked."""
    tiles, at = [], 0
    while at < min(first, extent):
        rows = min(size, extent - at)
        tiles.append((range(at, at + rows, rows), True))
        at += rows
    whole = max(stop - at, 0) // size * size
    if whole:
        tiles.append((range(at, at + whole, size), False))
        at += whole
    while at < extent:
        rest = min(size, extent - at)
        tiles.append((range(at, at + rest, rest), at + rest > stop))
        at += rest
    return tiles


def register_need(rows: int, vectors: int, problem: TileProblem, machine: Machine) -> int:
    """Return the vector registers that a tile needs."""
    operands = (vectors if problem.shared_columns else 1) + 1 + (machine.product_instructions - 1)
    sums = rows * vectors * (2 if problem.has_partial_sums else 1)
    return sums + operands + problem.temporaries + machine.spare_registers


def step_cycles(rows: int, vectors: int, problem: TileProblem, machine: Machine) -> float:
    """Estimate the cycles of a k-step of a tile: its bottleneck, and loads that are not hidden."""
    bounds = step_bounds(rows, vectors, problem, machine)
    cycles = max(bounds.values())
    if not problem.shared_rows or problem.has_large_output:
        return cycles
    return cycles + sum(part * bounds.get(name, 0.0) for name, part in machine.exposed_loads)


def step_bounds(rows: int, vectors: int, problem: TileProblem, machine: Machine) -> dict[str, float]:
    """Estimate lower bounds of the cycles of a k-step of a tile, by bottleneck."""
    sums = rows * vectors
    row_loads = rows if problem.shared_rows else vectors * _vectors_of_rows(rows, vectors, problem, machine)
    holds_columns = not problem.shared_columns and sums + problem.depth * vectors <= machine.vector_registers
    column_loads = 0 if holds_columns else vectors
    bounds = {
        "multiplications": sums * problem.multiplications / machine.fma_per_cycle,
        LOADS: (row_loads + column_loads) / machine.loads_per_cycle,
    }
    if problem.taps == 1:  # else tiles are a few products without a loop: those of the next ones fill the latency
        bounds["latency of multiplications"] = machine.fma_latency * LATENCY_SLACK
    if machine.issue_width:
        products = sums * problem.multiplications * machine.product_instructions
        bounds["issued instructions"] = (products + ISSUED_PER_LOAD * (row_loads + column_loads)) / machine.issue_width
    if problem.taps > 1:
        run = vectors * machine.vector_bytes
        lines = 1.0 if _keeps_lines(problem, machine) else max(1.0, LINE_BYTES / run)
        lines *= machine.short_run if run < LINES_PER_FETCH * LINE_BYTES else 1.0
        windows = vectors * _window_vectors(rows, problem) / problem.taps
        bounds["lines of windows from the L2 cache"] = (
            windows * machine.vector_bytes * lines / machine.l2_bytes_per_cycle
        )
    panel_bytes = problem.depth * vectors * machine.vector_bytes
    if problem.shared_columns and panel_bytes > machine.l1_bytes // 2:
        bounds[COLUMNS_FROM_L2] = vectors * machine.vector_bytes / machine.l2_bytes_per_cycle
    return bounds


def _vectors_of_rows(rows: int, vectors: int, problem: TileProblem, machine: Machine) -> float:
    """Return the vectors of the row operand that a tile loads in a k-step, for each vector of columns.

    Those that windows share are loaded once if accumulators leave half of the registers: LLVM orders the products so
    that no more are needed at a time. With more accumulators it spills.
    """
    if problem.taps == 1:
        return rows / 2
    if rows * vectors > machine.vector_registers // 2:
        return float(rows)
    return _window_vectors(rows, problem) / problem.taps


def _window_vectors(rows: int, problem: TileProblem) -> int:
    """Return the vectors of the row operand that adjacent windows read, for each vector of columns."""
    return min(rows * problem.taps, (rows - 1) * problem.tap_stride + problem.taps)


def _keeps_lines(problem: TileProblem, machine: Machine) -> bool:
    """Return whether the lines of pixels stay in the L1 cache until the next panel reads their other half.

    Pixels of 512 floats begin in two of 64 sets: the next panel reads all of them from the L2 cache again.
    """
    if problem.row_step <= 0:
        return False
    windows = problem.depth // problem.taps * _window_vectors(problem.rows, problem)
    pixels = problem.panel_pixels or windows + problem.rows
    crowded = _max_lines_per_set(pixels, problem.row_step // problem.tap_stride, _l1_sets(machine))
    return crowded <= L1_RESIDENT_SHARE * machine.l1_associativity


def _l1_sets(machine: Machine) -> int:
    return machine.l1_set_stride // LINE_BYTES


def crowding(rows: int, problem: TileProblem, machine: Machine) -> float:
    """Return the slowdown of a k-step if the lines of a tile's rows conflict in the L1 cache.

    Rows of 1024 or 3072 floats all begin in the same set: of more rows than the cache's associativity none stays
    until its next element is read.
    """
    if problem.row_step <= 0 or not problem.shared_rows:
        return 1.0
    crowded = _max_lines_per_set(rows, problem.row_step, _l1_sets(machine))
    if crowded > machine.l1_associativity:
        return 1.09
    return 1.04 if crowded > machine.l1_associativity - 2 else 1.0


@lru_cache(maxsize=4096)
def _max_lines_per_set(rows: int, row_step: int, sets: int) -> int:
    """Return the most lines of rows that one set of the L1 cache holds; memoized for the search of a tile."""
    return max(Counter(row * row_step // LINE_BYTES % sets for row in range(rows)).values())


def tile_overhead(rows: int, vectors: int, problem: TileProblem) -> float:
    """Estimate the cycles of a tile besides its products."""
    sums = rows * vectors
    if not problem.has_large_output:
        return TILE_OVERHEAD + sums
    return 4.0 + STORE_CYCLES * max(0, sums - OVERLAPPED_STORES)


def _row_cost(rows: int, extent: int, vectors: int, problem: TileProblem, machine: Machine) -> float:
    total = 0.0
    for tiles in tile_ranges(extent, rows):
        count = len(tiles)
        step = step_cycles(tiles.step, vectors, problem, machine) * crowding(tiles.step, problem, machine)
        body = problem.depth * step
        total += count * (body + tile_overhead(tiles.step, vectors, problem))
    return total


def tile_cycles(rows: int, vectors: int, problem: TileProblem, machine: Machine) -> float:
    """Estimate the cycles of all tiles of this size."""
    cost = 0.0
    for tiles in tile_ranges(problem.columns, vectors * problem.lanes):
        held = -(-tiles.step // problem.lanes)
        cost += len(tiles) * _row_cost(rows, problem.rows, held, problem, machine)
        cost += len(tiles) * problem.reread_bytes * machine.reread_cycles
    return cost


def _vectors_beyond_l2(problem: TileProblem, machine: Machine, most_sums: int, most_vectors: int) -> int | None:
    """Return the vectors of a tile whose rows, with columns of their own, come from beyond L2; None for other tiles.

    Longer contiguous ranges arrive faster: ranges of 256 bytes in as little as half of the time.
    """
    if problem.shared_rows or problem.row_bytes <= BEYOND_L2_FACTOR * machine.l2_bytes:
        return None
    return max(1, min(BEYOND_L2_VECTORS, most_sums // 4, most_vectors))


@dataclass(frozen=True)
class TileEstimate:
    """A tile, and the cycles that all tiles of its size are expected to take."""

    rows: int
    vectors: int
    cycles: float


@dataclass(frozen=True)
class TileSearch:
    """The request that a tile answers."""

    problem: TileProblem
    machine: Machine
    """The machine without the registers that sums need."""

    def estimate(self, rows: int, vectors: int) -> TileEstimate:
        """Return a tile with its cycles."""
        return TileEstimate(rows, vectors, tile_cycles(rows, vectors, self.problem, self.machine))

    def parts(self, tile: TileEstimate) -> dict[str, float]:
        """Return the cycles of a tile by cause."""
        problem = replace(self.problem, reread_bytes=0)
        begun = tile_cycles(tile.rows, tile.vectors, replace(problem, depth=0), self.machine)
        steps = tile_cycles(tile.rows, tile.vectors, problem, self.machine) - begun
        again = tile.cycles - steps - begun
        return {"k-steps": steps, "begin and end of tiles": begun, **({"rows read again": again} if again > 0 else {})}

    def limit(self, tile: TileEstimate) -> str:
        """Return the bottleneck of the k-steps of a tile."""
        bounds = step_bounds(tile.rows, tile.vectors, self.problem, self.machine)
        return max(bounds, key=lambda name: bounds[name])


def considered_tiles(problem: TileProblem, machine: Machine) -> Iterator[TileEstimate]:
    """Yield the tiles that are compared: those whose accumulators and operands fit the registers."""
    most_vectors = max(1, -(-problem.columns // problem.lanes))
    counts = sorted({*(v for v in VECTOR_COUNTS if v <= most_vectors), *([most_vectors] if most_vectors <= 8 else [])})
    most_sums = machine.vector_registers if problem.shared_rows else machine.vector_registers // 2
    far = _vectors_beyond_l2(problem, machine, most_sums, most_vectors)
    offered = counts if far is None else [far]

    def fits(rows: int, vectors: int) -> bool:
        return (
            register_need(rows, vectors, problem, machine) <= machine.vector_registers and rows * vectors <= most_sums
        )

    for vectors, rows in product(offered, range(min(problem.rows, machine.vector_registers), 0, -1)):
        if not fits(rows, vectors) and (rows, vectors) != (1, 1):
            continue
        if problem.row_pairs and rows % 2 and rows > 1:
            continue
        wider = next((v for v in offered if v > vectors and v.bit_count() == 1), 0)
        if problem.rows <= 2 and wider and fits(rows, wider) and register_need(rows, wider, problem, machine) < 20:
            continue  # without reuse, only the length of contiguous runs counts
        yield TileEstimate(rows, vectors, tile_cycles(rows, vectors, problem, machine))


def choose_tile(
    problem: TileProblem, machine: Machine, chosen: tuple[int, int] | None = None
) -> tuple[int, int, float]:
    """Choose rows and vectors of a tile; return them with the estimated cycles of all tiles."""
    if chosen is not None:
        rows, vectors = min(chosen[0], problem.rows), chosen[1]
        return rows, vectors, tile_cycles(rows, vectors, problem, machine)
    best: TileEstimate | None = None
    for tile in considered_tiles(problem, machine):
        # Between equals, the larger tile reads its operands fewer times.
        if best is None or tile.cycles < best.cycles * (1 - EQUAL_TILES):
            best = tile
    assert best is not None
    return best.rows, best.vectors, best.cycles
