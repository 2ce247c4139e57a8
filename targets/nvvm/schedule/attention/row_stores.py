"""Stores of finished attention rows: 16 bytes per thread, if the result is contiguous."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.core.value import Value, select
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.loops import when
from mirlo.passes.schedule.primitives.tree import ScheduleBuffer
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.attention.work import Work
from mirlo.targets.gpu.schedule.launch import split
from mirlo.targets.gpu.schedule.shuffles import of_neighbour
from mirlo.targets.gpu.schedule.vectors import all_of, is_aligned, store_vector
from mirlo.targets.nvvm.schedule.attention.online import TEAM, as_word
from mirlo.targets.nvvm.schedule.fragments import PAIR, Lane
from mirlo.targets.nvvm.schedule.units import COLUMNS


@dataclass(frozen=True)
class SharedRowStores:
    """Stores by the threads that share rows."""

    work: Work
    lane: Lane

    def store(self, total: ir.Value, sums: Sequence[ir.Value], row: Mapping[int, Value], exists: Value | None) -> None:
        """Store a row from this thread's part of it: pairs of adjacent columns, eight columns apart.

        `row` are the row's loop indices; `exists` is whether the row exists, None if that is certain.
        """
        if self.is_contiguous:
            self._together(total, sums, row, exists)
            return

        def each() -> None:
            for i, weighted in enumerate(sums):
                self.work.finish(total, weighted, {**row, self.work.found.value_loop: self._column(i)})

        when(exists, each)

    @property
    def is_contiguous(self) -> bool:
        """Return whether the only result has 16-bit elements, of which eight of a row are aligned to 16 bytes."""
        attention, results = self.work.found, self.work.leaves.results
        if len(results) != 1:
            return False
        access, position = results[0]
        if str(access.buffer.element) not in ("f16", "bf16"):
            return False
        return is_aligned(position, attention.value_loop, COLUMNS, attention.value_size)

    def _column(self, number: int) -> Value:
        """Return the column of one of this thread's elements."""
        return self.lane.member * PAIR + (number // PAIR * COLUMNS + number % PAIR)

    def _together(
        self, total: ir.Value, sums: Sequence[ir.Value], row: Mapping[int, Value], exists: Value | None
    ) -> None:
        attention, ((access, position),) = self.work.found, self.work.leaves.results
        element = access.buffer.element
        numbers = []
        for i, weighted in enumerate(sums):
            loops = {**row, attention.value_loop: self._column(i)}
            numbers.append(self.work.finished(total, weighted, loops)[access.buffer])
        words = [self._word(element, numbers[i : i + PAIR]) for i in range(0, len(numbers), PAIR)]
        for first in range(0, len(words), TEAM):
            here = words[first : first + TEAM]
            whole = exchanged(self.lane.member, here + here[-1:] * (TEAM - len(here)))
            column = self.lane.member * COLUMNS + first * COLUMNS
            condition = all_of(exists, self.lane.member.below(len(here)) if len(here) < TEAM else None)
            loops = {**row, attention.value_loop: column}
            when(condition, partial(self._write, access.buffer, position, whole, loops))

    @staticmethod
    def _word(element: ir.Type, pair: Sequence[ir.Value]) -> Value:
        return as_word(create("vector.from_elements", ir.VectorType.get([PAIR], element), *pair))

    def _write(
        self, buffer: ScheduleBuffer, position: IndexExpr, words: Sequence[ir.Value], loops: Mapping[int, Value]
    ) -> None:
        i32 = ir.IntegerType.get_signless(32)
        at = self.work.leaves.index(position, loops)
        op = create("vector.from_elements", ir.VectorType.get([TEAM], i32), *words)
        op = create("vector.bitcast", ir.VectorType.get([COLUMNS], buffer.element), op)
        store_vector(op, self.work.memory.slot(buffer.value).buffer, at)


def exchanged(member: Value, words: Sequence[ir.Value]) -> list[ir.Value]:
    """Transpose four words of each of four threads."""
    _, high, low = split(member, [1, 2, 2])
    odd, upper = low.equals(1), high.equals(1)

    pairs = []
    for first, second in (words[:2], words[2:]):
        got = of_neighbour(select(odd, first, second), 1)
        pairs.append((select(odd, got, first), select(odd, second, got)))
    lower, higher = pairs
    swapped = [of_neighbour(select(upper, a, b), 2) for a, b in zip(lower, higher, strict=True)]
    before = [select(upper, a, b) for a, b in zip(swapped, lower, strict=True)]
    after = [select(upper, a, b) for a, b in zip(higher, swapped, strict=True)]
    return [*before, *after]
