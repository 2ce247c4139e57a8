"""Rows whose keys several blocks of threads divide: what each of them has, and how that becomes the result.

Each part keeps its weighted sum, the sum of its weights, and the maximum that they are relative to. A second kernel
puts the parts of an element together, always in the same order.
"""

from __future__ import annotations

from typing import Any

from mirlo.dialects.bindings import memref
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.loops import index
from mirlo.targets.gpu.schedule.attention.work import Loops, Work, above, hidden, larger, times, weight
from mirlo.targets.gpu.schedule.finish import multiply_add
from mirlo.targets.gpu.schedule.launch import add, launch_points, multiply


class Parts:
    """The results of parts, in scratch memory."""

    def __init__(self, work: Work, count: int):
        self.work = work
        self.count = count
        self.kind = work.found.sum_type
        self.lines = work.batches * work.rows
        scratch = work.memory.buffers.scratch
        self.sums = scratch([count * self.lines * work.found.value_size], self.kind)
        self.peaks = scratch([count * self.lines], self.kind)
        self.totals = scratch([count * self.lines], self.kind)

    def line(self, part: Any, batch: Any, row: Any) -> Any:
        """The number of a row in all parts, from those of the part, the batch and the row."""
        return add(multiply(add(multiply(part, self.work.batches), batch), self.work.rows), row)

    def store_row(self, line: Any, peak: Any, total: Any) -> None:
        """Keep what belongs to a whole row."""
        memref.StoreOp(peak, self.peaks, [line])
        memref.StoreOp(total, self.totals, [line])

    def store(self, line: Any, column: Any, weighted: Any) -> None:
        """Keep one element of a row."""
        memref.StoreOp(weighted, self.sums, [add(multiply(line, self.work.found.value_size), column)])

    def combine(self) -> None:
        """Emit the launch that puts the parts together."""
        work = self.work

        def element(indices: list[Any]) -> None:
            batch, row, column = indices
            lines = [self.line(index(part), batch, row) for part in range(self.count)]
            peaks = [memref.LoadOp(self.peaks, [line]).result for line in lines]
            peak = hidden(self.kind)
            for value in peaks:
                peak = larger(peak, value)
            shift = above(peak)
            total = weighted = None
            for line, value in zip(lines, peaks, strict=True):
                share = weight(value, shift)
                part_total = memref.LoadOp(self.totals, [line]).result
                place = add(multiply(line, work.found.value_size), column)
                part = memref.LoadOp(self.sums, [place]).result
                total = times(share, part_total) if total is None else multiply_add(share, part_total, total)
                weighted = times(share, part) if weighted is None else multiply_add(share, part, weighted)
            loops: Loops = {**work.batch(batch), **work.row(row), work.found.value_loop: column}
            work.finish(total, weighted, loops)

        launch_points([work.batches, work.rows, work.found.value_size], element)


def tiles_of(part: Any, parts: int, tiles: int, seen: Any) -> tuple[Any, Any]:
    """First and last tile of keys of a part, of those that are seen."""
    if parts == 1:
        return index(0), seen
    share = -(-tiles // parts)
    first = multiply(part, share)
    last = create("arith.minui", first.type, add(first, share), seen)
    return create("arith.minui", first.type, first, last), last
