"""Attention with few rows, as in decoders: every key and value is read once, in vectors of 16 bytes.

A team of consecutive threads processes a key; each has a part of its head. They reduce the score by shuffles, update
the running maximum, and accumulate the weighted value. Teams, and thread blocks that split the keys, combine their
results only at the end.
"""

from __future__ import annotations

from functools import partial

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.value import Value, index, select
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.passes.schedule.blocks.attention import AttentionBlocks, Read
from mirlo.passes.schedule.blocks.combine import in_pairs
from mirlo.passes.schedule.blocks.contraction.body import widened
from mirlo.passes.schedule.buffers import ScheduleFacts
from mirlo.passes.schedule.loops import for_loop, when
from mirlo.passes.schedule.vectors import elements_of
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.attention.kernel import AttentionKernel
from mirlo.targets.gpu.schedule.attention.leaves import Loops
from mirlo.targets.gpu.schedule.attention.partial_results import KeyTiles
from mirlo.targets.gpu.schedule.attention.work import Work, above, hidden, larger
from mirlo.targets.gpu.schedule.launch import WARP, barrier, clamp_index, shared, split
from mirlo.targets.gpu.schedule.shuffles import of_neighbour
from mirlo.targets.gpu.schedule.vectors import load_vector, spread, store_vector
from mirlo.targets.nvvm.schedule.attention.online import weigh
from mirlo.targets.nvvm.schedule.attention.softmax import LOG2_E, exp2, fma
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

    def describe(self) -> ScheduleFacts:
        """Return what `mirlo explain` prints about it."""
        return {"keys": self.keys, "threads_of_a_key": self.members}


def teams_of(attention: AttentionBlocks) -> Teams:
    """Return teams with as many threads as one read of a key takes, up to a warp."""
    vector = ACCESS // element_bytes(attention.key.operand.element_type)
    pieces = max(attention.size, attention.value_size) // vector
    return Teams(min(WARP, 1 << max(pieces - 1, 0).bit_length()), vector, unrolled=4)


class DecodeKernel(AttentionKernel):
    """The kernel of one attention with few rows."""

    def __init__(self, work: Work, teams: Teams, parts: Dim):
        assert isinstance(work.rows, int)
        factor = work.factor_of_scores or 1.0
        super().__init__(work, parts, WARPS * WARP, work.rows, teams.keys, work.found.value_size, factor)
        self.teams = teams
        self.f32 = ir.F32Type.get()
        together = teams.members * teams.vector
        self.of_head = -(-self.found.size // together)
        self.of_value = -(-self.found.value_size // together)
        """Vectors per thread."""

    def attend(self, tiles: KeyTiles) -> None:
        teams, rows = self.teams, self.height
        self.team, self.member = split(self.thread, [teams.count, teams.members])
        self.set_rows([index(row) for row in range(rows)])
        self.query = [self._query(row) for row in self.row_loops]
        zero = emit_constant(0.0, self.f32)
        nothing = spread(zero, teams.vector)
        start = [hidden(self.f32)] * rows + [zero] * rows + [nothing] * (rows * self.of_value)

        def step(number: Value, *carried: ir.Value) -> list[ir.Value]:
            return self._step(number * teams.keys, list(carried))

        self._meet(for_loop(tiles.begin, tiles.end, 1, step, start))

    def _query(self, row: Loops) -> list[ir.Value]:
        """Load this thread's part of a query row; zero beyond its end."""
        attention, vector = self.found, self.teams.vector
        result = []
        for number in range(self.of_head):
            value = self._vector(attention.query, row, attention.size_loop, number)
            if not D.is_multiple(attention.size, self.teams.members * vector):
                zero = spread(emit_constant(0.0, self.f32), vector)
                value = create("arith.select", value.type, self._column(number).below(attention.size), value, zero)
            result.append(value)
        return result

    def _column(self, number: int) -> Value:
        return (self.member + number * self.teams.members) * self.teams.vector

    def _vector(self, read: Read, loops: Loops, loop: int, number: int) -> ir.Value:
        """Load consecutive elements of a tensor as f32."""
        vector, extent = self.teams.vector, self.found.size_along(loop)
        column = self._column(number)
        if not D.is_multiple(extent, self.teams.members * vector):
            column = create("arith.minui", column.type, column, index(extent - vector))
        place = self.work.leaves.position(read, {**loops, loop: column})
        loaded = load_vector(self.work.memory.slot(read.operand.value).buffer, place, vector)
        return widened(read.factor.emit(loaded, vector), self.f32)

    def _step(self, first_key: Value, carried: list[ir.Value]) -> list[ir.Value]:
        """Process some keys of each team."""
        attention, teams, rows = self.found, self.teams, self.height
        peaks, totals, sums = carried[:rows], carried[rows : 2 * rows], carried[2 * rows :]
        keys = [first_key + (self.team + u * teams.count) for u in range(teams.unrolled)]
        held = [{**self.batch, attention.key_loop: clamp_index(key, attention.keys, teams.keys)} for key in keys]
        heads = [[self._vector(attention.key, at, attention.size_loop, n) for n in range(self.of_head)] for at in held]
        values = [
            [self._vector(attention.value, at, attention.value_loop, n) for n in range(self.of_value)] for at in held
        ]
        new_peaks: list[ir.Value] = []
        new_totals: list[ir.Value] = []
        new_sums: list[ir.Value] = []
        for row in range(rows):
            scores = [self._score(row, key, head) for key, head in zip(keys, heads, strict=True)]
            weighed = weigh([scores], peaks[row : row + 1], totals[row : row + 1], self.factor, team=1)
            new_peaks += weighed.peaks
            new_totals += weighed.totals
            for number in range(self.of_value):
                total = sums[row * self.of_value + number]
                total = Value(total) * spread(weighed.fades[0], teams.vector)
                for weight, value in zip(weighed.weights[0], values, strict=True):
                    total = create("vector.fma", total.type, spread(weight, teams.vector), value[number], total)
                new_sums.append(total)
        return [*new_peaks, *new_totals, *new_sums]

    def _score(self, row: int, key: Value, head: list[ir.Value]) -> ir.Value:
        """Return a masked score, known to all threads of the team."""
        attention = self.found
        total: ir.Value | None = None
        for query, own in zip(self.query[row], head, strict=True):
            total = Value(query) * own if total is None else create("vector.fma", own.type, query, own, total)
        assert total is not None
        score = in_pairs(lambda a, b: a + b, [Value(element) for element in elements_of(total)])
        distance = 1
        while distance < self.teams.members:
            score = score + of_neighbour(score, distance)
            distance *= 2
        at = {**self.row_loops[row], attention.key_loop: clamp_index(key, attention.keys, self.teams.keys)}
        masked = self.work.score(score, at, in_units=True)
        if not D.is_multiple(attention.keys, self.teams.keys):
            masked = select(key.below(attention.keys), masked, hidden(masked.type))
        return masked

    def _meet(self, done: list[ir.Value]) -> None:
        """Combine the results of the teams and apply the epilogue, to one element per thread or several."""
        attention, teams, rows = self.found, self.teams, self.height
        wide = attention.value_size
        peaks, totals = (shared(rows * teams.count, self.f32) for _ in range(2))
        sums = shared(rows * teams.count * wide, self.f32)
        for row in range(rows):
            line = self.team * rows + row

            def store_row(row: int = row, line: Value = line) -> None:
                memref.StoreOp(done[row], peaks, [line])
                memref.StoreOp(done[rows + row], totals, [line])

            when(self.member.equals(0), store_row)
            for number in range(self.of_value):
                vector = done[2 * rows + row * self.of_value + number]
                column = self._column(number)
                place = line * wide + column
                inside = column.below(wide) if not D.is_multiple(wide, teams.members * teams.vector) else None
                when(inside, partial(store_vector, vector, sums, place))
        barrier()
        threads = WARPS * WARP
        for first in range(0, rows * wide, threads):
            own = self.thread + first
            inside = own.below(rows * wide) if first + threads > rows * wide else None
            when(inside, partial(self._finish, own, peaks, totals, sums))

    def _finish(self, number: Value, peaks: Value, totals: Value, sums: Value) -> None:
        attention, teams, rows = self.found, self.teams, self.height
        row, column = split(number, [rows, attention.value_size])
        lines = [index(team) * rows + row for team in range(teams.count)]
        own = [memref.LoadOp(peaks, [line]).result for line in lines]
        peak = in_pairs(larger, own)
        scale = emit_constant(self.factor * LOG2_E, self.f32)
        away = above(peak) * (-self.factor * LOG2_E)
        zero: Value = emit_constant(0.0, self.f32)
        total, weighted = zero, zero
        for line, value in zip(lines, own, strict=True):
            share = exp2(fma(value, scale, away))
            total = fma(share, memref.LoadOp(totals, [line]).result, total)
            place = line * attention.value_size + column
            weighted = fma(share, memref.LoadOp(sums, [place]).result, weighted)
        loops = {**self.batch, **self.work.row(row), attention.value_loop: column}
        kept = self.parts.store_row(self.part, self.batch_number, row, peak, total, column.equals(0))
        self.parts.store(kept, loops, total, weighted)
