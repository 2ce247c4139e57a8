"""Assignment of rows and keys to persistent thread blocks, one job after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import static_dim
from mirlo.dialects.core.value import Value, index
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.loops import for_loop
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.attention.leaves import Loops
from mirlo.targets.gpu.schedule.attention.partial_results import tiles_of
from mirlo.targets.gpu.schedule.attention.work import Work
from mirlo.targets.gpu.schedule.launch import clamp_index, split
from mirlo.targets.nvvm.schedule.attention.mapped import GroupTile, MappedOperands
from mirlo.targets.nvvm.schedule.attention.memory import rematerialize
from mirlo.targets.nvvm.schedule.bulk import i32

CACHED = 24 << 20
"""Bytes of keys and values that stay in the L2 cache: blocks that run concurrently read no more."""


@dataclass(frozen=True)
class Job:
    """A tile of rows, and the tiles of keys that it sees, from the last one down."""

    loops: Loops
    """Loop indices shared by all rows of the tile."""
    batch_number: Value
    before: Value
    """Rows of the batch before the first head of these rows."""
    first_row: Value
    """The first row within its head."""
    part: Value
    begin: Value
    """The first tile of keys."""
    edge: Value
    """The first tile that is partly masked for some row; the last tile, if there is none before."""
    last: Value


@dataclass(frozen=True)
class Visit:
    """A job at the time it is processed."""

    job: Job
    odd: Value
    """Alternates between 0 and 1."""
    again: Callable[[], Job]
    """Recompute the job, so that it takes no registers in between."""


@dataclass(frozen=True)
class Row:
    """A row of a thread."""

    number: Value
    """The row's number in its batch."""
    loops: Loops
    exists: Value | None
    """Whether the row exists; None if that is certain."""


class Jobs:
    """All tiles of rows, and the blocks that share them: those with the most keys are first."""

    def __init__(self, work: Work, factors: MappedOperands, tile: GroupTile, parts: int, units: int):
        self.work, self.factors, self.tile, self.parts = work, factors, tile, parts
        attention = work.found
        self.rows = factors.query.lines
        self.outers = static_dim(attention.count(factors.outer))
        self.heads = static_dim(work.batches) * self.outers
        self.high = -(-self.rows // tile.height)
        self.count = self.heads * self.high * parts
        self.blocks = min(units, self.count)
        element = factors.key.form.bytes
        read = static_dim(attention.keys) * (attention.size + attention.value_size) * element // self.outers
        near = max(1, CACHED // read)
        self.near = next(n for n in range(min(near, self.heads), 0, -1) if self.heads % n == 0)

    def each(
        self, block: Value, body: Callable[[Visit, list[ir.Value]], list[ir.Value]], carried: Sequence[ir.Value]
    ) -> None:
        """Run `body` for each job of a block; every other round is reversed to balance the blocks."""
        whole, rest = divmod(self.count, self.blocks)
        back = create("arith.subi", block.type, index(self.blocks - 1), block)
        rounds = index(whole)
        if rest:
            has_more = (back if whole % 2 else block).below(rest)
            rounds = create("arith.select", rounds.type, has_more, index(whole + 1), rounds)

        def find(turn: Value) -> Job:
            # Values that are recomputed each time take no registers in between.
            last = create("arith.subi", block.type, index(self.blocks - 1), rematerialize(block))
            mine = create("arith.select", block.type, remainder(turn).below(1), block, last)
            return self._job(turn * self.blocks + mine)

        def remainder(turn: Value) -> Value:
            return create("arith.remui", turn.type, turn, index(2))

        def one(turn: Value, *held: ir.Value) -> list[ir.Value]:
            return body(Visit(find(turn), remainder(turn), lambda: find(rematerialize(turn))), list(held))

        loop_i32(rounds, one, carried)

    def _job(self, number: Value) -> Job:
        work, tile = self.work, self.tile
        section, turn, within, part = split(number, [self.heads // self.near, self.high, self.near, self.parts])
        batch_number, outer = split(section * self.near + within, [work.batches, self.outers])
        # With a causal bound the last rows see most keys.
        down = create("arith.subi", turn.type, index(self.high - 1), turn) if self.high > 1 else turn
        first = down * tile.height
        batch, before = work.batch(batch_number), outer * self.rows
        last = clamp_index(first + (tile.height - 1), self.rows, tile.height)
        ends = before + first, before + last
        tiles = tiles_of(work, batch, ends, tile.keys, part, self.parts)
        # Rows that see no key process one tile whose keys are all masked.
        end = create("arith.maxui", tiles.end.type, tiles.end, tiles.begin + 1)
        last_tile = create("arith.subi", end.type, end, index(1))
        same = {loop: work.row(before)[loop] for loop in self.factors.outer}
        return Job({**batch, **same}, batch_number, before, first, part, tiles.begin, tiles.edge(last_tile), last_tile)

    def row(self, job: Job, own: Value) -> Row:
        """Return the row with this number in the tile of a job."""
        row = job.first_row + own
        exists = row.below(self.rows) if not D.is_multiple(self.rows, self.tile.height) else None
        number = job.before + clamp_index(row, self.rows, self.tile.height)
        return Row(number, {**job.loops, **self.work.row(number)}, exists)


def loop_i32(count: Value, body: Callable[..., Sequence[ir.Value]], carried: Sequence[ir.Value]) -> list[ir.Value]:
    """Run `body(i, *carried)` `count` times; indices have 32 bits, to save registers."""

    def one(i: Value, *held: ir.Value) -> list[ir.Value]:
        following = body(i, *(_cast_index(kind, value) for kind, value in zip(kinds, held, strict=True)))
        return [_to_i32(value) for value in following]

    kinds = [value.type for value in carried]
    new_loop = for_loop(0, count, 1, one, [_to_i32(value) for value in carried])
    return [_cast_index(kind, value) for kind, value in zip(kinds, new_loop, strict=True)]


def _to_i32(value: ir.Value) -> ir.Value:
    return i32(value) if isinstance(value.type, ir.IndexType) else value


def _cast_index(kind: ir.Type, value: ir.Value) -> ir.Value:
    return value if value.type == kind else create("arith.index_cast", kind, value)
