"""Tiled attention: a thread block computes some rows, one tile of keys after another.

Only one tile of scores exists at a time, with an online softmax. Operands pass through shared memory, a few k-steps
at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from math import gcd
from operator import add

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.value import Value, select
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.passes.schedule.blocks.attention import Read
from mirlo.passes.schedule.buffers import ScheduleFacts
from mirlo.passes.schedule.loops import for_loop, when
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.attention.kernel import AttentionKernel
from mirlo.targets.gpu.schedule.attention.partial_results import KeyTiles
from mirlo.targets.gpu.schedule.attention.work import Work, above, hidden, larger, weight
from mirlo.targets.gpu.schedule.exchange import Exchange, SharedExchange, exchanged_elements
from mirlo.targets.gpu.schedule.launch import barrier, clamp_index, shared, split
from mirlo.targets.gpu.schedule.vectors import all_of, multiply_add

DEPTH = 16
"""k-steps in shared memory at a time."""

MIN_ROWS_FOR_SHARED = 8
"""Fewest rows for which values are copied to shared memory."""

Team = Callable[[Value, Value, "ThreadAttentionTile", ir.Type], Exchange]
"""Makes the exchange between the threads of a row, from the indices of row and thread, the tile and the value type."""


@dataclass(frozen=True)
class ThreadAttentionTile:
    """Threads of a block along rows and keys, and the scores of each thread."""

    down: int
    across: int
    rows: int
    keys: int
    columns: int
    """Elements of a row of values per block."""

    @property
    def height(self) -> int:
        return self.down * self.rows

    @property
    def width(self) -> int:
        return self.across * self.keys

    @property
    def shared_elements(self) -> int:
        """Return the elements of shared memory.

        They hold k-steps of both operands or of the values, weights, and exchanged values.
        """
        stage = DEPTH * max(self.height + self.width, self.columns)
        return stage + self.height * self.width + exchanged_elements(self.down, self.across, self.rows)

    def describe(self) -> ScheduleFacts:
        """Return the description that `mirlo explain` prints."""
        return {"tile": [self.height, self.width]}

    @property
    def thread_columns(self) -> int:
        """Return the columns of a thread."""
        return -(-self.columns // self.across)


def in_shared_memory(down: Value, across: Value, tile: ThreadAttentionTile, kind: ir.Type) -> Exchange:
    """Return an exchange that works on every GPU."""
    return SharedExchange(down, across, tile.down, tile.across, tile.rows, kind)


class TiledKernel(AttentionKernel):
    """The kernel of one attention."""

    def __init__(self, work: Work, tile: ThreadAttentionTile, parts: Dim, team: Team = in_shared_memory):
        super().__init__(work, parts, tile.down * tile.across, tile.height, tile.width, tile.columns)
        self.tile = tile
        self.team = team
        self.kind = self.found.sum_type

    def attend(self, tiles: KeyTiles) -> None:
        tile = self.tile
        self.down, self.across = split(self.thread, [tile.down, tile.across])
        self.meet = self.team(self.down, self.across, tile, self.kind)
        self.stage = shared(DEPTH * max(tile.height + tile.width, tile.columns), self.kind)
        self.weights = shared(tile.height * tile.width, self.kind)
        self.set_rows([self.down + i * tile.down for i in range(tile.rows)])
        zero, lowest = emit_constant(0.0, self.kind), hidden(self.kind)
        start = [lowest] * tile.rows + [zero] * tile.rows + [zero] * (tile.rows * tile.thread_columns)

        def step(number: Value, *carried: ir.Value) -> list[ir.Value]:
            return self._step(number * tile.width, list(carried))

        self._finish(for_loop(tiles.begin, tiles.end, 1, step, start))

    def _step(self, first_key: Value, carried: list[ir.Value]) -> list[ir.Value]:
        rows = self.tile.rows
        peaks, totals, sums = carried[:rows], carried[rows : 2 * rows], carried[2 * rows :]
        scores = self._scores(first_key)
        own = [reduce(larger, line) for line in scores]
        new = [larger(a, b) for a, b in zip(peaks, self.meet.together(own, larger), strict=True)]
        shifts = [above(peak) for peak in new]
        fades = [weight(peak, shift) for peak, shift in zip(peaks, shifts, strict=True)]
        for i, (line, shift) in enumerate(zip(scores, shifts, strict=True)):
            weights = [weight(score, shift) for score in line]
            totals[i] = Value(totals[i]) * fades[i] + reduce(add, weights)
            for j, value in enumerate(weights):
                memref.StoreOp(value, self.weights, [self._weight_position(i, j)])
        count = self.tile.thread_columns
        sums = [Value(total) * fades[i // count] for i, total in enumerate(sums)]
        return [*new, *totals, *self._weighted(first_key, sums)]

    def _weight_position(self, i: int, j: int) -> Value:
        row = self.down + i * self.tile.down
        return row * self.tile.width + (self.across + j * self.tile.across)

    def _scores(self, first_key: Value) -> list[list[ir.Value]]:
        """Compute this thread's masked scores of a tile."""
        attention, tile = self.found, self.tile
        zero = emit_constant(0.0, self.kind)

        def step(first: Value, *sums: ir.Value) -> list[ir.Value]:
            self._load(first, tile.height, self._query)
            self._load(first, tile.width, lambda line: self._key(first_key, line), start=DEPTH * tile.height)
            barrier()
            following = for_loop(0, DEPTH, 1, lambda k, *held: self._products(k, held), list(sums))
            barrier()
            return following

        sums = for_loop(0, attention.size, DEPTH, step, [zero] * (tile.rows * tile.keys))
        lines, lowest = [], hidden(self.kind)
        for i, loops in enumerate(self.row_loops):
            line = []
            for j in range(tile.keys):
                key = first_key + (self.across + j * tile.across)
                at = {**loops, attention.key_loop: clamp_index(key, attention.keys, tile.width)}
                score = self.work.score(sums[i * tile.keys + j], at)
                if not D.is_multiple(attention.keys, tile.width):
                    score = select(key.below(attention.keys), score, lowest)
                line.append(score)
            lines.append(line)
        return lines

    def _query(self, line: Value) -> tuple[Read, dict[int, Value]]:
        row = clamp_index(self.first_row + line, self.work.rows, self.tile.height)
        return self.found.query, {**self.batch, **self.work.row(row)}

    def _key(self, first_key: Value, line: Value) -> tuple[Read, dict[int, Value]]:
        key = clamp_index(first_key + line, self.found.keys, self.tile.width)
        return self.found.key, {**self.batch, self.found.key_loop: key}

    def _load(
        self,
        first: Value,
        lines: int,
        source: Callable[[Value], tuple[Read, dict[int, Value]]],
        start: int = 0,
    ) -> None:
        """Load some k-steps of the first product's operands; zero beyond the last one."""
        size = self.found.size

        def load(line: Value, depth: Value) -> None:
            read, loops = source(line)
            at = first + depth
            value = self.work.factor(read, {**loops, self.found.size_loop: clamp_index(at, size, DEPTH)})
            if not D.is_multiple(size, DEPTH):
                value = create("arith.select", value.type, at.below(size), value, emit_constant(0.0, value.type))
            memref.StoreOp(value, self.stage, [depth * lines + line + start])

        self._share(lines, DEPTH, load)

    def _share(self, lines: int, across: int, body: Callable[[Value, Value], None]) -> None:
        """Divide rows of `across` elements among the threads; call `body` with a row and an element."""
        threads = self.tile.down * self.tile.across
        if threads % across == 0 and lines % (threads // across) == 0:
            # A thread's rows have a constant distance, so their addresses differ by constants.
            together = threads // across
            own, column = split(self.thread, [together, across])
            for first in range(0, lines, together):
                body(own + first, column)
            return
        for first in range(0, lines * across, threads):
            number = self.thread + first
            inside = number.below(lines * across) if first + threads > lines * across else None

            def one(number: Value = number) -> None:
                body(*split(number, [lines, across]))

            when(inside, one)

    def _products(self, k: Value, sums: tuple[ir.Value, ...]) -> list[ir.Value]:
        tile = self.tile
        rows = self._line(k * tile.height + self.down, tile.rows, tile.down)
        keys = self._line(k * tile.width + self.across + DEPTH * tile.height, tile.keys, tile.across)
        pairs = [(a, b) for a in rows for b in keys]
        return [multiply_add(a, b, total) for (a, b), total in zip(pairs, sums, strict=True)]

    def _line(self, first: Value, count: int, apart: int) -> list[ir.Value]:
        return [memref.LoadOp(self.stage, [first + i * apart]).result for i in range(count)]

    def _weighted(self, first_key: Value, sums: list[ir.Value]) -> list[ir.Value]:
        """Add the tile's weights times the values to the accumulators."""
        tile, attention = self.tile, self.found
        if tile.height < MIN_ROWS_FOR_SHARED:
            barrier()
            return for_loop(0, tile.width, 1, lambda k, *held: self._add_directly(first_key, k, held), sums)
        depth = gcd(DEPTH, tile.width)

        def step(first: Value, *held: ir.Value) -> list[ir.Value]:
            def load(line: Value, column: Value) -> None:
                key = clamp_index(first_key + (first + line), attention.keys, tile.width)
                at = clamp_index(self.first_column + column, attention.value_size, tile.columns)
                loops = {**self.batch, attention.key_loop: key, attention.value_loop: at}
                memref.StoreOp(self.work.factor(attention.value, loops), self.stage, [line * tile.columns + column])

            self._share(depth, tile.columns, load)
            barrier()
            following = for_loop(0, depth, 1, lambda k, *inner: self._add(first, k, inner), list(held))
            barrier()
            return following

        barrier()
        return for_loop(0, tile.width, depth, step, sums)

    def _add_directly(self, first_key: Value, k: Value, sums: tuple[ir.Value, ...]) -> list[ir.Value]:
        """Add values for few rows directly from global memory."""
        tile, attention = self.tile, self.found
        key = clamp_index(first_key + k, attention.keys, tile.width)
        values = []
        for c in range(tile.thread_columns):
            column = clamp_index(self.across + c * tile.across, tile.columns, tile.across)
            at = clamp_index(self.first_column + column, attention.value_size, tile.columns)
            values.append(
                self.work.factor(attention.value, {**self.batch, attention.key_loop: key, attention.value_loop: at})
            )
        return self._multiplied(k, values, sums)

    def _add(self, first: Value, k: Value, sums: tuple[ir.Value, ...]) -> list[ir.Value]:
        tile, count = self.tile, self.tile.thread_columns
        line = k * tile.columns
        values = []
        for c in range(count):
            column = clamp_index(self.across + c * tile.across, tile.columns, tile.across)
            values.append(memref.LoadOp(self.stage, [line + column]).result)
        return self._multiplied(first + k, values, sums)

    def _multiplied(self, at: Value, values: list[ir.Value], sums: tuple[ir.Value, ...]) -> list[ir.Value]:
        """Add the weights of one key times its values to the accumulators."""
        tile = self.tile
        weights = [
            memref.LoadOp(self.weights, [(self.down + i * tile.down) * tile.width + at]).result
            for i in range(tile.rows)
        ]
        pairs = [(w, v) for w in weights for v in values]
        return [multiply_add(w, v, total) for (w, v), total in zip(pairs, sums, strict=True)]

    def _finish(self, done: list[ir.Value]) -> None:
        rows, count = self.tile.rows, self.tile.thread_columns
        totals = self.meet.together(done[rows : 2 * rows], lambda a, b: Value(a) + b)
        for i in range(rows):
            sums = done[2 * rows + i * count :][:count]
            when(self.row_exists(i), partial(self._finish_row, i, done[i], totals[i], sums))

    def _finish_row(self, i: int, peak: ir.Value, total: ir.Value, sums: list[ir.Value]) -> None:
        tile, attention = self.tile, self.found
        mine = self.across.below(1)
        line = self.parts.store_row(self.part, self.batch_number, self.own_rows[i], peak, total, mine)
        for c in range(tile.thread_columns):
            own = self.across + c * tile.across
            column = self.first_column + own
            condition = all_of(
                own.below(tile.columns) if tile.columns % tile.across != 0 else None,
                column.below(attention.value_size) if not D.is_multiple(attention.value_size, tile.columns) else None,
            )
            when(condition, partial(self.store, line, i, column, total, sums[c]))
