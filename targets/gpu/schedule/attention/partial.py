"""Rows whose keys several blocks of threads divide: what each of them has, and how that becomes the result.

Each part keeps its weighted sum, the sum of its weights, and the maximum that they are relative to. A second kernel
puts the parts of an element together, always in the same order. How many parts there are may be known at run time only;
where it turns out to be one, that one finishes its rows, and the second kernel is not started.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mirlo.dialects.bindings import memref
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.passes.schedule.loops import for_loop, index
from mirlo.targets.gpu.schedule.attention.work import Loops, Work, above, hidden, larger, weight
from mirlo.targets.gpu.schedule.finish import multiply_add
from mirlo.targets.gpu.schedule.launch import add, either, launch_points, less, multiply, when


class Parts:
    """The results of parts, in scratch memory."""

    def __init__(self, work: Work, count: Dim):
        self.work = work
        self.count = count
        self.kind = work.found.sum_type
        self.lines = work.batches * work.rows
        self.started = work.times
        if not isinstance(count, int):
            self.started = self.started * D.minimum(count - 1, 1)
        scratch = work.memory.buffers.scratch
        kept = count * self.lines * self.started
        self.sums = scratch([kept * work.found.value_size], self.kind)
        self.peaks = scratch([kept], self.kind)
        self.totals = scratch([kept], self.kind)

    def line(self, part: Any, batch: Any, row: Any) -> Any:
        """The number of a row in all parts, from those of the part, the batch and the row."""
        return add(multiply(add(multiply(part, self.work.batches), batch), self.work.rows), row)

    def _are_several(self) -> Any:
        """Whether there is another part; None where that is sure."""
        return None if isinstance(self.count, int) else less(index(1), self.count)

    def store_row(self, line: Any, peak: Any, total: Any, mine: Any) -> None:
        """Keep what belongs to a whole row, by the thread for which `mine` is true."""
        several = self._are_several()
        if several is not None:
            mine = create("arith.andi", mine.type, mine, several)

        def keep() -> None:
            memref.StoreOp(peak, self.peaks, [line])
            memref.StoreOp(total, self.totals, [line])

        when(mine, keep)

    def store(self, line: Any, column: Any, weighted: Any, finish: Callable[[], None]) -> None:
        """Keep one element of a row; where there are no other parts, `finish` it."""
        keep = partial(self._keep, line, column, weighted)
        several = self._are_several()
        if several is None:
            keep()
        else:
            either(several, keep, finish)

    def _keep(self, line: Any, column: Any, weighted: Any) -> None:
        memref.StoreOp(weighted, self.sums, [add(multiply(line, self.work.found.value_size), column)])

    def combine(self) -> None:
        """Emit the launch that puts the parts together."""
        work = self.work

        def element(indices: list[Any]) -> None:
            batch, row, column = indices
            total, weighted = (self._few if isinstance(self.count, int) else self._any)(batch, row, column)
            loops: Loops = {**work.batch(batch), **work.row(row), work.found.value_loop: column}
            work.finish(total, weighted, loops)

        launch_points([work.batches * self.started, work.rows, work.found.value_size], element)

    def _few(self, batch: Any, row: Any, column: Any) -> list[Any]:
        """The sums of a number of parts that is known."""
        lines = [self.line(index(part), batch, row) for part in range(int(self.count))]  # type: ignore[arg-type]
        peaks = [memref.LoadOp(self.peaks, [line]).result for line in lines]
        peak = hidden(self.kind)
        for value in peaks:
            peak = larger(peak, value)
        shift = above(peak)
        held = [emit_constant(0.0, self.kind)] * 2
        for line, value in zip(lines, peaks, strict=True):
            held = self._with_part(line, value, shift, column, held)
        return held

    def _any(self, batch: Any, row: Any, column: Any) -> list[Any]:
        """The same of any number."""

        def look(part: Any, peak: Any) -> list[Any]:
            return [larger(peak, memref.LoadOp(self.peaks, [self.line(part, batch, row)]).result)]

        (peak,) = for_loop(0, self.count, 1, look, [hidden(self.kind)])
        shift = above(peak)

        def join(part: Any, *held: Any) -> list[Any]:
            line = self.line(part, batch, row)
            return self._with_part(line, memref.LoadOp(self.peaks, [line]).result, shift, column, list(held))

        return for_loop(0, self.count, 1, join, [emit_constant(0.0, self.kind)] * 2)

    def _with_part(self, line: Any, peak: Any, shift: Any, column: Any, held: list[Any]) -> list[Any]:
        """Total and weighted sum, with those of one more part."""
        share = weight(peak, shift)
        place = add(multiply(line, self.work.found.value_size), column)
        found = [memref.LoadOp(self.totals, [line]).result, memref.LoadOp(self.sums, [place]).result]
        return [multiply_add(share, part, sum_) for part, sum_ in zip(found, held, strict=True)]


def parts_of(work: Work, count: Dim) -> Parts | None:
    """Memory for the parts of an attention, if there may be several."""
    return None if count == 1 else Parts(work, count)


def tiles_of(part: Any, parts: Dim, tiles: Dim, seen: Any) -> tuple[Any, Any]:
    """First and last tile of keys of a part, of those that are seen."""
    if parts == 1:
        return index(0), seen
    share = D.ceildiv(tiles, parts)
    first = multiply(part, share)
    last = create("arith.minui", first.type, add(first, share), seen)
    return create("arith.minui", first.type, first, last), last
