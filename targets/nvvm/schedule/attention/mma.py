"""Attention by `mma.sync`: queries in registers, keys and values in shared memory, weights never leave a warp.

Each warp has some rows. For a tile of keys it computes scores in fragments, their maxima by shuffles within four
threads, and the weights, whose registers are the lhs operand of the product with the values. Values are copied
during the scores, and the next keys during the second product (`cp.async`). Fully masked tiles are skipped, and
fully visible ones computed without the mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.value import Value, index
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.passes.schedule.blocks.attention import Read
from mirlo.passes.schedule.buffers import ScheduleFacts
from mirlo.passes.schedule.loops import for_loop, when
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.attention.kernel import AttentionKernel
from mirlo.targets.gpu.schedule.attention.partial_results import KeyTiles
from mirlo.targets.gpu.schedule.attention.work import Work, hidden
from mirlo.targets.gpu.schedule.contraction.staging import SharedMatrix, elements_of_tile
from mirlo.targets.gpu.schedule.launch import WARP, barrier, clamp_index, shared, split
from mirlo.targets.gpu.schedule.vectors import all_of, element_at, spread
from mirlo.targets.nvvm.schedule.attention.memory import RhsReader, rematerialize
from mirlo.targets.nvvm.schedule.attention.online import as_word, in_all, masked, packed, pairs_of, weigh
from mirlo.targets.nvvm.schedule.copies import async_copy, commit, wait
from mirlo.targets.nvvm.schedule.fragments import Lane, Registers, multiply_add, registers
from mirlo.targets.nvvm.schedule.units import COLUMNS, F16, ROWS, Format

STEP = 16
"""K elements of one product."""


@dataclass(frozen=True)
class WarpAttentionTile:
    """The tile of a thread block and its warps."""

    warps: int
    rows: int
    """Fragments of 16 rows per warp."""
    keys: int
    """Keys per tile."""
    columns: int
    """Elements of a row of values, whole pairs of fragments."""

    @property
    def height(self) -> int:
        return self.warps * self.rows * ROWS

    def describe(self) -> ScheduleFacts:
        """Return what `mirlo explain` prints about it."""
        return {"tile": [self.height, self.keys], "warps": self.warps}


class MmaKernel(AttentionKernel):
    """The kernel of one attention by `mma.sync`."""

    def __init__(self, work: Work, tile: WarpAttentionTile, parts: Dim, form: Format):
        factor = work.factor_of_scores or 1.0
        super().__init__(work, parts, tile.warps * WARP, tile.height, tile.keys, tile.columns, factor)
        self.form = form
        self.tile = tile
        self.depth = -(-self.found.size // STEP) * STEP
        self.f32 = ir.F32Type.get()

    def attend(self, tiles: KeyTiles) -> None:
        tile = self.tile
        warp, lane = split(self.thread, [tile.warps, WARP])
        self.lane = Lane.of(lane)
        self.warp_row = warp * (tile.rows * ROWS)
        self._allocate_memory()
        self.set_rows([self.warp_row + (self.lane.group + i * 8) for i in range(2 * tile.rows)])
        self._fetch_query()
        self._copy_keys(tiles.begin)
        commit()
        zero = spread(emit_constant(0.0, self.f32), 2, 2)
        lines = 2 * tile.rows
        start = [hidden(self.f32)] * lines + [emit_constant(0.0, self.f32)] * lines
        start += [zero] * (tile.rows * tile.columns // COLUMNS)
        edge = tiles.edge(tiles.end)
        carried = for_loop(tiles.begin, edge, 1, lambda t, *held: self._step(t, list(held), True), start)
        carried = for_loop(edge, tiles.end, 1, lambda t, *held: self._step(t, list(held), False), carried)
        wait()
        self._finish(carried)

    # Memory

    def _allocate_memory(self) -> None:
        """Allocate keys and values separately; queries share that memory until they are in registers."""
        tile, element = self.tile, self.found.key.operand.element_type
        shapes = [(tile.keys, self.depth, True), (tile.columns, tile.keys, False)]
        keys, values = (elements_of_tile(*shape, self.form) for shape in shapes)
        query = elements_of_tile(tile.height, self.depth, True, self.form)
        memory = shared(max(query, keys + values), element)
        self.query_memory = SharedMatrix(memory, tile.height, self.depth, True, self.form)
        self.keys = SharedMatrix(memory, *shapes[0], self.form)
        self.values = SharedMatrix(memory, *shapes[1], self.form, start=index(keys))

    def _fetch_query(self) -> None:
        tile = self.tile

        def source(line: Value) -> tuple[dict[int, Value], Value | None]:
            row = clamp_index(self.first_row + line, self.work.rows, tile.height)
            return {**self.batch, **self.work.row(row)}, None

        self._copy(self.found.query, self.query_memory, tile.height, self.depth, self.found.size_loop, index(0), source)
        commit()
        wait()
        barrier()
        self.query = [
            [
                registers(self.form, self.lane.load_lhs(self.query_memory, self.warp_row + r * ROWS, index(step)))
                for step in range(0, self.depth, STEP)
            ]
            for r in range(tile.rows)
        ]
        barrier()

    def _copy_keys(self, number: Value) -> None:
        source = partial(self._key, self._first_key(number))
        attention = self.found
        self._copy(attention.key, self.keys, self.tile.keys, self.depth, attention.size_loop, index(0), source)

    def _copy_values(self, number: Value) -> None:
        source = partial(self._key, self._first_key(number))
        attention, tile = self.found, self.tile
        self._copy(
            attention.value, self.values, tile.keys, tile.columns, attention.value_loop, self.first_column, source
        )

    def _first_key(self, number: Value) -> Value:
        """Return the first key of a tile; of the last tile for tiles beyond it."""
        held = create("arith.minui", number.type, number, index(self.tiles - 1))
        return held * self.tile.keys

    def _key(self, first: Value, line: Value) -> tuple[dict[int, Value], Value | None]:
        """Return the indices of a key, and whether it exists, if that is not certain."""
        key = first + line
        if D.is_multiple(self.found.keys, self.tile.keys):
            return {**self.batch, self.found.key_loop: key}, None
        held = create("arith.minui", key.type, key, index(self.found.keys - 1))
        return {**self.batch, self.found.key_loop: held}, key.below(self.found.keys)

    def _copy(
        self,
        read: Read,
        matrix: SharedMatrix,
        lines: int,
        width: int,
        loop: int,
        first: Value,
        source: Callable[[Value], tuple[dict[int, Value], Value | None]],
    ) -> None:
        """Copy rows of a tensor to shared memory in 16-byte vectors; out-of-bounds elements are zero."""
        extent, vector = self.found.size_along(loop), self.form.vector
        buffer = self.work.memory.slot(read.operand.value).buffer

        def copy(line: Value, column: Value) -> None:
            column = column * vector
            loops, exists = source(line)
            at = first + column
            if not D.is_multiple(extent, width):
                exists = all_of(exists, at.below(extent))
                at = create("arith.minui", at.type, at, index(extent - vector))
            place = self.work.leaves.position(read, {**loops, loop: at})
            target = matrix.place(line, column) if matrix.along_k else matrix.place(column, line)
            count = index(vector)
            if exists is not None:
                count = create("arith.select", count.type, exists, count, index(0))
            async_copy(buffer, place, matrix.memory, target, count, vector)

        for line, column, is_own in self._vector_positions(lines, width // vector):
            when(is_own, partial(copy, line, column))

    def _vector_positions(self, lines: int, across: int) -> Iterator[tuple[Value, Value, Value | None]]:
        """Yield row and column of each vector that this thread copies, and whether it does, if that is not certain."""
        if self.threads % across == 0:
            # Rows have a constant distance, so addresses differ by constants.
            together = self.threads // across
            own, column = split(self.thread, [together, across])
            for first in range(0, lines, together):
                line = own + first
                yield line, column, None if first + together <= lines else line.below(lines)
            return
        for first in range(0, lines * across, self.threads):
            number = self.thread + first
            line, column = split(number, [lines, across])
            yield line, column, None if first + self.threads <= lines * across else number.below(lines * across)

    # A tile of keys

    def _step(self, number: Value, carried: list[ir.Value], inside: bool) -> list[ir.Value]:
        tile = self.tile
        lines = 2 * tile.rows
        peaks, totals, sums = carried[:lines], carried[lines : 2 * lines], carried[2 * lines :]
        wait()
        # All threads see these keys now, and none reads the previous values any more.
        barrier()
        self._copy_values(number)
        commit()
        scores = self._scores()
        wait()
        barrier()
        self._copy_keys(number + 1)
        commit()
        first = number * tile.keys + rematerialize(self.lane.member * 2)
        seen = masked(self.work, self._by_rows(scores), self.row_loops, first, tile.keys, inside)
        weighed = weigh(seen, peaks, totals, self.factor)
        return [*weighed.peaks, *weighed.totals, *self._weighted(weighed.weights, weighed.fades, sums)]

    def _scores(self) -> list[list[ir.Value]]:
        """Return fragments of a tile of scores: for each row fragment one per 8 keys."""
        tile = self.tile
        zero = spread(emit_constant(0.0, self.f32), 2, 2)
        sums: list[list[ir.Value]] = [[zero] * (tile.keys // COLUMNS) for _ in range(tile.rows)]
        right = RhsReader(self.lane, self.keys, 0, STEP)
        for step in range(0, self.depth, 2 * STEP):
            for j in range(tile.keys // COLUMNS):
                for k, keys in enumerate(right.read(j * COLUMNS, step, step + STEP < self.depth)):
                    for r in range(tile.rows):
                        sums[r][j] = multiply_add(self.query[r][step // STEP + k], keys, sums[r][j])
        return sums

    def _by_rows(self, scores: list[list[ir.Value]]) -> list[list[ir.Value]]:
        """Return this thread's scores of each of its rows."""
        return [
            [element_at(fragment, half, c) for fragment in scores[r] for c in range(2)]
            for r in range(self.tile.rows)
            for half in range(2)
        ]

    def _weighted(
        self, weights: Sequence[Sequence[ir.Value]], fades: Sequence[ir.Value], sums: list[ir.Value]
    ) -> list[ir.Value]:
        """Rescale the accumulators and add the weights times the values."""
        tile = self.tile
        count = tile.columns // COLUMNS
        kind = ir.VectorType.get([2, 2], self.f32)
        for r in range(tile.rows):
            upper, lower = fades[2 * r], fades[2 * r + 1]
            fade = create("vector.from_elements", kind, upper, upper, lower, lower)
            sums[r * count : (r + 1) * count] = [Value(total) * fade for total in sums[r * count : (r + 1) * count]]
        right = RhsReader(self.lane, self.values, COLUMNS, 0)
        for step in range(0, tile.keys, STEP):
            rows = [self._as_lhs(weights[2 * r], weights[2 * r + 1], step) for r in range(tile.rows)]
            for j in range(0, count, 2):
                for k, values in enumerate(right.read(j * COLUMNS, step, True)):
                    for r, row in enumerate(rows):
                        at = r * count + j + k
                        sums[at] = multiply_add(row, values, sums[at])
        return sums

    def _as_lhs(self, upper: Sequence[ir.Value], lower: Sequence[ir.Value], step: int) -> Registers:
        """Return the weights of 16 keys as the lhs operand: two adjacent elements of a row per register."""
        element = self.found.value.operand.element_type
        pairs = [packed(element, a, b) for a, b in pairs_of(upper, lower, step)]
        return Registers(self.form, tuple(pairs if self.form is F16 else map(as_word, pairs)))

    # Finished rows

    def _finish(self, carried: list[ir.Value]) -> None:
        lines = 2 * self.tile.rows
        totals = in_all(carried[lines : 2 * lines])
        for line in range(lines):
            finish = partial(self._finish_row, line, carried[line], totals[line], carried[2 * lines :])
            when(self.row_exists(line), finish)

    def _finish_row(self, line: int, peak: ir.Value, total: ir.Value, sums: list[ir.Value]) -> None:
        tile, attention = self.tile, self.found
        mine = self.lane.member.below(1)
        kept = self.parts.store_row(self.part, self.batch_number, self.own_rows[line], peak, total, mine)
        count = tile.columns // COLUMNS
        for j in range(count):
            for c in range(2):
                weighted = element_at(sums[line // 2 * count + j], line % 2, c)
                column = self.first_column + (self.lane.member * 2 + (j * COLUMNS + c))
                inside = (
                    column.below(attention.value_size)
                    if not D.is_multiple(attention.value_size, tile.columns)
                    else None
                )
                when(inside, partial(self.store, kept, line, column, total, weighted))
