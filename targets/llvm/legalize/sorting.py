"""Sorting on CPUs: a radix sort of each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.compute import INDEX, Expr, LoopBuilder, at_most_last, constant
from mirlo.dialects.tir.compute.loops import Buffer
from mirlo.passes.legalize.helpers import ordered_bits, shape_of, short_name, tensor_type
from mirlo.passes.rules import Decline, decline, legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder

DIGIT_BITS = 8
"""Bits that a pass sorts by: the ends of 256 runs that it writes to are in the first-level cache."""
DIGITS = 1 << DIGIT_BITS
MIN_ELEMENTS = 64
"""Fewest elements of a row for which counting digits pays; measured for f32."""
SORTED = ("f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")


@legalize("relax.sort", "relax.argsort", target="llvm", name="radix")
def sort(op: ir.OpView, b: LegalizeBuilder) -> ir.Value | Decline:
    """Sort by one digit after the other, from the last one: each pass is stable, and so is the sort."""
    shape, element = shape_of(op.x), tensor_type(op.x).dtype
    axis = op.axis % len(shape)
    size = shape[axis]
    if element.name not in SORTED:
        return decline("digits of the element type are not read", type=element.name)
    if isinstance(size, int) and size < MIN_ELEMENTS:
        return decline("rows are short", size=size)
    wants_places = short_name(op) == "argsort"

    def body(loops: LoopBuilder, x: Buffer, output: Buffer) -> None:
        rows = _Rows(loops, size, element.bits)
        for at in loops.nest([*shape[:axis], *shape[axis + 1 :]], parallel=True):

            def place(i: Expr, at: Sequence[Expr] = at) -> list[Expr]:
                return [*at[:axis], i, *at[axis:]]

            rows.clear()
            for i in loops.range(size):
                key = ordered_bits(x[place(i)])
                rows.put(i, loops.let(~key if op.descending else key))
            positions = rows.sort()
            for i in loops.range(size):
                source = loops.let(positions[i])
                output[place(i)] = source if wants_places else x[place(at_most_last(source, size))]

    return b.call_loops(body, op.x)


class _Rows:
    """Scratch memory for the keys of a row and their places, twice, and the counts of their digits."""

    def __init__(self, loops: LoopBuilder, size: Dim, bits: int):
        self.loops = loops
        self.size = size
        self.passes = bits // DIGIT_BITS
        self.unsigned = f"u{bits}"
        self.keys = [loops.scratch((size,), self.unsigned) for _ in range(2)]
        self.places = [loops.scratch((size,), "i64") for _ in range(2)]
        self.counts = loops.scratch((self.passes, DIGITS), "i64")

    def clear(self) -> None:
        for at in self.loops.nest((self.passes, DIGITS)):
            self.counts[at] = constant(0, "i64")

    def put(self, i: Expr, key: Expr) -> None:
        """Set a key, and count its digits."""
        self.keys[0][i], self.places[0][i] = key, i.cast("i64")
        for step in range(self.passes):
            at = step, self.loops.let(self._digit(key, step))
            self.counts[at] = self.counts[at] + 1

    def sort(self) -> Buffer:
        """Sort the keys; return the buffer with their places."""
        loops, counts = self.loops, self.counts
        for step in range(self.passes):
            source, target = step % 2, 1 - step % 2
            total = loops.variable(0, "i64")
            for digit in loops.range(DIGITS):
                count = loops.let(counts[step, digit])
                counts[step, digit] = total.get()
                total.set(total.get() + count)
            for i in loops.range(self.size):
                key = loops.let(self.keys[source][i])
                at = step, loops.let(self._digit(key, step))
                free = loops.let(counts[at])
                counts[at] = free + 1
                end = loops.let(at_most_last(free, self.size))
                self.places[target][end] = self.places[source][i]
                if step + 1 < self.passes:
                    self.keys[target][end] = key
        return self.places[self.passes % 2]

    def _digit(self, key: Expr, step: int) -> Expr:
        shifted = key >> constant(step * DIGIT_BITS, self.unsigned) if step else key
        return (shifted & constant(DIGITS - 1, self.unsigned)).cast(INDEX)
