"""Partial results of rows whose keys are split among thread blocks, and their combination.

Each part keeps its weighted sum, the sum of its weights, and the maximum they are relative to. A second kernel
combines the parts of an element in a fixed order. The number of parts may be dynamic; if it is one, that part
finishes its rows and the second kernel is not launched.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.passes.schedule.loops import for_loop, index
from mirlo.targets.gpu.schedule.attention.work import Loops, Work, above, hidden, larger, weight
from mirlo.targets.gpu.schedule.epilogue import multiply_add
from mirlo.targets.gpu.schedule.launch import add, either, launch_points, less, multiply, when


class PartialResults:
    """Partial results in scratch memory."""

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

    def line(self, part: ir.Value, batch: ir.Value, row: ir.Value) -> ir.Value:
        """Return the index of a row among all parts, from part, batch and row."""
        return add(multiply(add(multiply(part, self.work.batches), batch), self.work.rows), row)

    def _are_several(self) -> ir.Value | None:
        """Return whether there is more than one part; None if that is certain."""
        return None if isinstance(self.count, int) else less(index(1), self.count)

    def store_row(self, line: ir.Value, peak: ir.Value, total: ir.Value, mine: ir.Value) -> None:
        """Store the values of a whole row, by the thread for which `mine` is true."""
        several = self._are_several()
        if several is not None:
            mine = create("arith.andi", mine.type, mine, several)

        def keep() -> None:
            memref.StoreOp(peak, self.peaks, [line])
            memref.StoreOp(total, self.totals, [line])

        when(mine, keep)

    def store(self, line: Any, column: ir.Value, weighted: Any, finish: Callable[[], None]) -> None:
        """Store one element of a row; `finish` it instead if there are no other parts."""
        keep = partial(self._keep, line, column, weighted)
        several = self._are_several()
        if several is None:
            keep()
        else:
            either(several, keep, finish)

    def _keep(self, line: ir.Value, column: ir.Value, weighted: ir.Value) -> None:
        memref.StoreOp(weighted, self.sums, [add(multiply(line, self.work.found.value_size), column)])

    def combine(self) -> None:
        """Emit the launch that combines the parts."""
        work = self.work

        def element(indices: list[ir.Value]) -> None:
            batch, row, column = indices
            total, weighted = (self._few if isinstance(self.count, int) else self._any)(batch, row, column)
            loops: Loops = {**work.batch(batch), **work.row(row), work.found.value_loop: column}
            work.finish(total, weighted, loops)

        launch_points([work.batches * self.started, work.rows, work.found.value_size], element)

    def _few(self, batch: ir.Value, row: ir.Value, column: ir.Value) -> list[ir.Value]:
        """Combine a static number of parts."""
        lines = [self.line(index(part), batch, row) for part in range(int(self.count))]  # type: ignore[arg-type]
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

        def look(part: ir.Value, peak: ir.Value) -> list[ir.Value]:
            return [larger(peak, memref.LoadOp(self.peaks, [self.line(part, batch, row)]).result)]

        (peak,) = for_loop(0, self.count, 1, look, [hidden(self.kind)])
        shift = above(peak)

        def join(part: ir.Value, *held: ir.Value) -> list[ir.Value]:
            line = self.line(part, batch, row)
            return self._with_part(line, memref.LoadOp(self.peaks, [line]).result, shift, column, list(held))

        return for_loop(0, self.count, 1, join, [emit_constant(0.0, self.kind)] * 2)

    def _with_part(
        self, line: ir.Value, peak: ir.Value, shift: ir.Value, column: ir.Value, held: list[ir.Value]
    ) -> list[ir.Value]:
        """Return total and weighted sum with one more part added."""
        share = weight(peak, shift)
        place = add(multiply(line, self.work.found.value_size), column)
        found = [memref.LoadOp(self.totals, [line]).result, memref.LoadOp(self.sums, [place]).result]
        return [multiply_add(share, part, sum_) for part, sum_ in zip(found, held, strict=True)]


def allocate_partial_results(work: Work, count: Dim) -> PartialResults | None:
    """Return memory for the parts of an attention, if there may be several."""
    return None if count == 1 else PartialResults(work, count)


def tiles_of(part: ir.Value, parts: Dim, tiles: Dim, seen: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the first and last key tile of a part, among the visible ones."""
    if parts == 1:
        return index(0), seen
    share = D.ceildiv(tiles, parts)
    first = multiply(part, share)
    last = create("arith.minui", first.type, add(first, share), seen)
    return create("arith.minui", first.type, first, last), last
