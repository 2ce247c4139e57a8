"""Attention with few rows, as in decoders: every key and value is read once, in vectors of 16 bytes.

A team of consecutive threads processes a key; each has a part of its head. They reduce the score by shuffles, update
the running maximum, and accumulate the weighted value. Teams, and thread blocks that split the keys, combine their
results only at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.passes.schedule.blocks.attention import AttentionBlocks, Read
from mirlo.passes.schedule.blocks.contraction.body import widened
from mirlo.passes.schedule.loops import for_loop, index
from mirlo.targets.gpu.schedule.attention.partial import allocate_partial_results, tiles_of
from mirlo.targets.gpu.schedule.attention.work import Work, above, hidden, larger, plus, times
from mirlo.targets.gpu.schedule.launch import (
    Ids,
    add,
    barrier,
    clamp_index,
    equal,
    launch,
    less,
    multiply,
    shared,
    split,
    when,
)
from mirlo.targets.nvvm.schedule.attention.softmax import LOG2_E, exp2, fma, fold
from mirlo.targets.nvvm.schedule.fragments import WARP
from mirlo.targets.nvvm.schedule.shuffles import of_neighbour
from mirlo.targets.nvvm.schedule.units import ACCESS

WARPS = 4


@dataclass(frozen=True)
class Teams:
    """How threads divide keys and heads."""

    members: int
    """Threads of a team."""
    vector: int
    """Elements in 16 bytes."""
    unrolled: int
    """Keys per team that are in flight together."""

    @property
    def count(self) -> int:
        """Return the teams of a block."""
        return WARPS * WARP // self.members

    @property
    def keys(self) -> int:
        """Return the keys of a block per iteration."""
        return self.count * self.unrolled


def teams_of(found: AttentionBlocks, unrolled: int = 4) -> Teams:
    """Return teams with as many threads as one read of a key takes, up to a warp."""
    vector = ACCESS // element_bytes(found.key.operand.element_type)
    pieces = max(found.size, found.value_size) // vector
    return Teams(min(WARP, 1 << max(pieces - 1, 0).bit_length()), vector, unrolled)


class DecodeKernel:
    """The kernel of one attention with few rows."""

    def __init__(self, work: Work, teams: Teams, parts: Dim):
        self.work = work
        self.found = work.found
        self.teams = teams
        self.count = parts
        self.parts = allocate_partial_results(work, parts)
        self.tiles = D.ceildiv(self.found.keys, teams.keys)
        assert isinstance(work.rows, int)
        self.of_block = work.rows
        self.f32 = ir.F32Type.get()
        self.factor = work.factor_of_scores or 1.0
        together = teams.members * teams.vector
        self.of_head = -(-self.found.size // together)
        self.of_value = -(-self.found.value_size // together)
        """Vectors per thread."""

    def emit(self) -> None:
        self.work.touch()
        launch(self.work.batches * self.count * self.work.times, WARPS * WARP, self._block)
        if self.parts is not None:
            self.parts.combine()

    def _block(self, ids: Ids) -> None:
        work, teams, rows = self.work, self.teams, self.of_block
        self.batch_number, part = split(ids.block, [work.batches, self.count])
        self.batch = work.batch(self.batch_number)
        self.team, self.member = split(ids.thread, [teams.count, teams.members])
        self.rows = [{**self.batch, **work.row(index(row))} for row in range(rows)]
        self.query = [self._query(row) for row in self.rows]
        seen = work.seen(self.batch, index(0), index(rows - 1))
        tiles = create("arith.divui", seen.type, add(seen, teams.keys - 1), index(teams.keys))
        begin, end = tiles_of(part, self.count, self.tiles, tiles)
        zero = emit_constant(0.0, self.f32)
        nothing = create("vector.broadcast", ir.VectorType.get([teams.vector], self.f32), zero)
        start = [hidden(self.f32)] * rows + [zero] * rows + [nothing] * (rows * self.of_value)
        done = for_loop(begin, end, 1, lambda t, *held: self._step(multiply(t, teams.keys), list(held)), start)
        self._meet(ids.thread, part, done)

    def _query(self, row: dict[int, ir.Value]) -> list[ir.Value]:
        """Load this thread's part of a query row; zero beyond its end."""
        found, vector = self.found, self.teams.vector
        made = []
        for number in range(self.of_head):
            value = self._vector(found.query, row, found.size_loop, number)
            if found.size % (self.teams.members * vector):
                zero = create("vector.broadcast", value.type, emit_constant(0.0, self.f32))
                value = create("arith.select", value.type, less(self._column(number), found.size), value, zero)
            made.append(value)
        return made

    def _column(self, number: int) -> ir.Value:
        return multiply(add(self.member, number * self.teams.members), self.teams.vector)

    def _vector(self, read: Read, loops: dict[int, ir.Value], loop: int, number: int) -> ir.Value:
        """Load consecutive elements of a tensor as f32."""
        vector, extent = self.teams.vector, self.found.size_along(loop)
        column = self._column(number)
        if extent % (self.teams.members * vector):
            column = create("arith.minui", column.type, column, index(extent - vector))
        element = read.operand.element_type
        kind = ir.VectorType.get([vector], element)
        alignment = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), vector * element_bytes(element))
        place = self.work.position(read, {**loops, loop: column})
        buffer = self.work.memory.slot(read.operand.value).buffer
        loaded = create("vector.load", kind, buffer, place, alignment=alignment)
        return widened(read.factor.emit(loaded, vector), self.f32)

    def _step(self, first_key: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
        """Process some keys of each team."""
        found, teams, rows = self.found, self.teams, self.of_block
        peaks, totals, sums = carried[:rows], carried[rows : 2 * rows], carried[2 * rows :]
        keys = [add(first_key, add(self.team, u * teams.count)) for u in range(teams.unrolled)]
        held = [{**self.batch, found.key_loop: clamp_index(key, found.keys, teams.keys)} for key in keys]
        heads = [[self._vector(found.key, at, found.size_loop, n) for n in range(self.of_head)] for at in held]
        values = [[self._vector(found.value, at, found.value_loop, n) for n in range(self.of_value)] for at in held]
        scale = emit_constant(self.factor * LOG2_E, self.f32)
        new_peaks, new_totals, new_sums = [], [], []
        for row in range(rows):
            scores = [self._score(row, key, head) for key, head in zip(keys, heads, strict=True)]
            peak = larger(peaks[row], fold(larger, scores))
            away = times(above(peak), emit_constant(-self.factor * LOG2_E, self.f32))
            fade = exp2(fma(peaks[row], scale, away))
            weights = [exp2(fma(score, scale, away)) for score in scores]
            new_peaks.append(peak)
            new_totals.append(fma(totals[row], fade, fold(plus, weights)))
            for number in range(self.of_value):
                total = sums[row * self.of_value + number]
                total = times(total, create("vector.broadcast", total.type, fade))
                for weight, value in zip(weights, values, strict=True):
                    spread = create("vector.broadcast", total.type, weight)
                    total = create("vector.fma", total.type, spread, value[number], total)
                new_sums.append(total)
        return [*new_peaks, *new_totals, *new_sums]

    def _score(self, row: int, key: ir.Value, head: list[ir.Value]) -> ir.Value:
        """Return a masked score, known to all threads of the team."""
        found = self.found
        total = None
        for query, own in zip(self.query[row], head, strict=True):
            total = times(query, own) if total is None else create("vector.fma", own.type, query, own, total)
        score = fold(plus, [self._number(total, i) for i in range(self.teams.vector)])
        distance = 1
        while distance < self.teams.members:
            score = plus(score, of_neighbour(score, distance))
            distance *= 2
        at = {**self.rows[row], found.key_loop: clamp_index(key, found.keys, self.teams.keys)}
        score = self.work.score(score, at, in_units=True)
        if found.keys % self.teams.keys:
            score = create("arith.select", score.type, less(key, found.keys), score, hidden(score.type))
        return score

    def _number(self, vector: Any, i: int) -> ir.Value:
        return create("vector.extract", self.f32, vector, static_position=ir.DenseI64ArrayAttr.get([i]))

    def _meet(self, thread: Any, part: ir.Value, done: list[ir.Value]) -> None:
        """Combine the results of the teams and apply the epilogue, to one element per thread or several."""
        found, teams, rows = self.found, self.teams, self.of_block
        wide = found.value_size
        peaks, totals = (shared(rows * teams.count, self.f32) for _ in range(2))
        sums = shared(rows * teams.count * wide, self.f32)
        for row in range(rows):
            line = add(multiply(self.team, rows), row)

            def store_row(row: int = row, line: ir.Value = line) -> None:
                memref.StoreOp(done[row], peaks, [line])
                memref.StoreOp(done[rows + row], totals, [line])

            when(equal(self.member, 0), store_row)
            for number in range(self.of_value):
                vector = done[2 * rows + row * self.of_value + number]
                column = self._column(number)
                place = add(multiply(line, wide), column)
                inside = less(column, wide) if wide % (teams.members * teams.vector) else None
                when(inside, partial(self._store_vector, vector, sums, place))
        barrier()
        threads = WARPS * WARP
        for first in range(0, rows * wide, threads):
            number = add(thread, first)
            inside = less(number, rows * wide) if first + threads > rows * wide else None
            when(inside, partial(self._finish, part, number, peaks, totals, sums))

    def _store_vector(self, vector: ir.Value, memory: ir.Value, place: ir.Value) -> None:
        alignment = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), ACCESS)
        ir.Operation.create("vector.store", operands=[vector, memory, place], attributes={"alignment": alignment})

    def _finish(self, part: ir.Value, number: Any, peaks: ir.Value, totals: ir.Value, sums: ir.Value) -> None:
        found, teams, rows = self.found, self.teams, self.of_block
        row, column = split(number, [rows, found.value_size])
        lines = [add(multiply(index(team), rows), row) for team in range(teams.count)]
        own = [memref.LoadOp(peaks, [line]).result for line in lines]
        peak = fold(larger, own)
        scale = emit_constant(self.factor * LOG2_E, self.f32)
        away = times(above(peak), emit_constant(-self.factor * LOG2_E, self.f32))
        zero: ir.Value = emit_constant(0.0, self.f32)
        total, weighted = zero, zero
        for line, value in zip(lines, own, strict=True):
            share = exp2(fma(value, scale, away))
            total = fma(share, memref.LoadOp(totals, [line]).result, total)
            place = add(multiply(line, found.value_size), column)
            weighted = fma(share, memref.LoadOp(sums, [place]).result, weighted)
        loops = {**self.batch, **self.work.row(row), found.value_loop: column}
        if self.parts is None:
            self.work.finish(total, weighted, loops)
            return
        kept = self.parts.line(part, self.batch_number, row)
        in_full = times(peak, emit_constant(self.factor, self.f32))
        self.parts.store_row(kept, in_full, total, equal(column, 0))
        self.parts.store(kept, column, weighted, partial(self.work.finish, total, weighted, loops))
