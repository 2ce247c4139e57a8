"""Partial results of rows whose keys are split among thread blocks, and their combination.

Each part keeps its weighted sum, the sum of its weights, and the maximum they are relative to. A second kernel
combines the parts of an element in a fixed order. The number of parts may be dynamic; if it is one, that part
finishes its rows and the second kernel is not launched.
"""

from __future__ import annotations

from functools import partial

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.value import Value, index
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.passes.schedule.loops import either, for_loop, when
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.attention.leaves import Loops
from mirlo.targets.gpu.schedule.attention.work import Work, above, hidden, larger, weight
from mirlo.targets.gpu.schedule.launch import launch_points
from mirlo.targets.gpu.schedule.vectors import all_of, multiply_add


class PartialResults:
    """Partial results in scratch memory, if there may be several parts."""

    def __init__(self, work: Work, count: Dim, factor: float = 1):
        self.work = work
        self.count = count
        self.factor = factor
        self.kind = work.found.sum_type
        if count == 1:
            return
        self.lines = work.batches * work.rows
        self.started = work.times
        if not isinstance(count, int):
            self.started = self.started * D.minimum(count - 1, 1)
        scratch = work.memory.buffers.scratch
        kept = count * self.lines * self.started
        self.sums = scratch([kept * work.found.value_size], self.kind)
        self.peaks = scratch([kept], self.kind)
        self.totals = scratch([kept], self.kind)

    def line(self, part: Value, batch: ir.Value, row: ir.Value) -> Value:
        """Return the index of a row among all parts, from part, batch and row."""
        return (part * self.work.batches + batch) * self.work.rows + row

    def _are_several(self) -> Value | None:
        """Return whether there is more than one part; None if that is certain."""
        return None if isinstance(self.count, int) else index(1).below(self.count)

    def store_row(
        self, part: Value, batch: Value, row: Value, peak: ir.Value, total: ir.Value, mine: Value
    ) -> Value | None:
        """Store the values of a whole row, by the thread for which `mine` is true; return its index."""
        if self.count == 1:
            return None
        line = self.line(part, batch, row)
        if self.factor != 1:
            peak = Value(peak) * self.factor

        def keep() -> None:
            memref.StoreOp(peak, self.peaks, [line])
            memref.StoreOp(total, self.totals, [line])

        when(all_of(mine, self._are_several()), keep)
        return line

    def store(self, line: Value | None, loops: Loops, total: ir.Value, weighted: ir.Value) -> None:
        """Store one element of a row; finish it instead if there are no other parts."""
        finish = partial(self.work.finish, total, weighted, loops)
        if self.count == 1:
            finish()
            return
        assert line is not None
        keep = partial(self._keep, line, loops[self.work.found.value_loop], weighted)
        several = self._are_several()
        if several is None:
            keep()
        else:
            either(several, keep, finish)

    def _keep(self, line: Value, column: Value, weighted: ir.Value) -> None:
        memref.StoreOp(weighted, self.sums, [line * self.work.found.value_size + column])

    def combine(self) -> None:
        """Emit the launch that combines the parts, if there may be several."""
        work = self.work
        if self.count == 1:
            return

        def element(indices: list[Value]) -> None:
            batch, row, column = indices
            total, weighted = (self._few if isinstance(self.count, int) else self._any)(batch, row, column)
            loops: Loops = {**work.batch(batch), **work.row(row), work.found.value_loop: column}
            work.finish(total, weighted, loops)

        launch_points([work.batches * self.started, work.rows, work.found.value_size], element)

    def _few(self, batch: ir.Value, row: ir.Value, column: ir.Value) -> list[ir.Value]:
        """Combine a static number of parts."""
        lines = [self.line(index(part), batch, row) for part in range(int(self.count))]
        peaks = [memref.LoadOp(self.peaks, [line]).result for line in lines]
        peak = hidden(self.kind)
        for value in peaks:
            peak = larger(peak, value)
        shift = above(peak)
        held: list[ir.Value] = [emit_constant(0.0, self.kind)] * 2
        for line, value in zip(lines, peaks, strict=True):
            held = self._with_part(line, value, shift, column, held)
        return held

    def _any(self, batch: ir.Value, row: ir.Value, column: ir.Value) -> list[ir.Value]:
        """Combine a dynamic number of parts."""

        def look(part: Value, peak: ir.Value) -> list[ir.Value]:
            return [larger(peak, memref.LoadOp(self.peaks, [self.line(part, batch, row)]).result)]

        (peak,) = for_loop(0, self.count, 1, look, [hidden(self.kind)])
        shift = above(peak)

        def join(part: Value, *held: ir.Value) -> list[ir.Value]:
            line = self.line(part, batch, row)
            return self._with_part(line, memref.LoadOp(self.peaks, [line]).result, shift, column, list(held))

        return for_loop(0, self.count, 1, join, [emit_constant(0.0, self.kind)] * 2)

    def _with_part(
        self, line: Value, peak: ir.Value, shift: Value, column: ir.Value, held: list[ir.Value]
    ) -> list[ir.Value]:
        """Return total and weighted sum with one more part added."""
        share = weight(peak, shift)
        place = line * self.work.found.value_size + column
        loaded = [memref.LoadOp(self.totals, [line]).result, memref.LoadOp(self.sums, [place]).result]
        return [multiply_add(share, part, sum_) for part, sum_ in zip(loaded, held, strict=True)]


@dataclass(frozen=True)
class KeyTiles:
    """The tiles of keys of a part that some row sees."""

    begin: Value
    end: Value
    whole: Value
    """The first one that a bound crosses; it may be outside."""

    def edge(self, last: Value) -> Value:
        """Return the first tile that a bound crosses, or one of the ends."""
        edge = create("arith.maxui", self.begin.type, self.whole, self.begin)
        return create("arith.minui", edge.type, edge, last)


def tiles_of(work: Work, batch: Loops, rows: tuple[Value, Value], keys: int, part: Value, parts: Dim) -> KeyTiles:
    """Return a part's tiles of `keys` that rows from the first to the last see."""
    seen = work.seen(batch, *rows)
    end = create("arith.divui", seen.type, seen + (keys - 1), index(keys))
    begin: Value = index(0)
    if parts != 1:
        share = D.ceildiv(D.ceildiv(work.found.keys, keys), parts)
        begin = part * share
        end = create("arith.minui", begin.type, begin + share, end)
        begin = create("arith.minui", begin.type, begin, end)
    by_all = work.seen(batch, *rows, by_all=True)
    return KeyTiles(begin, end, create("arith.divui", seen.type, by_all, index(keys)))
