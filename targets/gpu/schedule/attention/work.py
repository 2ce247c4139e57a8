"""Shared code of all attention kernels: row indices, masks on scores, visible keys, finished rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.core.value import Value, compare, index
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.dialects.tir.intrinsics import emit as emit_intrinsic
from mirlo.passes.schedule.blocks.attention import AttentionBlocks, Read
from mirlo.passes.schedule.blocks.attention_mask import Bound
from mirlo.passes.schedule.blocks.contraction.body import convert_accumulator, widened
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.primitives.tree import ScheduleBuffer
from mirlo.targets.gpu.schedule.attention.leaves import AttentionLeaves, Loops
from mirlo.targets.gpu.schedule.launch import split


class Work:
    """An attention, and the memory that its kernels use."""

    def __init__(self, attention: AttentionBlocks, memory: TensorBuffers, times: Dim = 1):
        """Prepare an attention; the views of all buffers are made at the insertion point, outside of the kernels."""
        self.found = attention
        self.times = times
        """How often the host launches the kernels: once, or not at all if run-time sizes need others."""
        self.memory = memory
        self.leaves = AttentionLeaves(attention, memory)
        self.batches = attention.count(attention.batch)
        self.rows = attention.count(attention.rows)
        scaling = attention.scaling
        self.factor_of_scores = None if scaling is None else scaling.factor

    # Positions

    def batch(self, number: ir.Value) -> dict[int, Value]:
        """Return the loop indices of a batch."""
        return self._loops(self.found.batch, number)

    def row(self, number: ir.Value) -> dict[int, Value]:
        """Return the loop indices of a row within a batch."""
        return self._loops(self.found.rows, number)

    def _loops(self, loops: Sequence[int], number: ir.Value) -> dict[int, Value]:
        return dict(zip(loops, split(number, [self.found.extents[loop] for loop in loops]), strict=True))

    # Values

    def factor(self, read: Read, loops: Loops) -> ir.Value:
        """Return an operand of one of the products, in the accumulator type."""
        return widened(read.factor.emit(self.leaves.load(read, loops), 1), self.found.sum_type)

    def score(
        self,
        total: ir.Value,
        loops: Loops,
        inside: bool = False,
        in_units: bool = False,
        known: Mapping[ir.Value, ir.Value] | None = None,
    ) -> ir.Value:
        """Return a masked score; `inside` says whether its key is within all bounds.

        With `in_units` the common scale is not applied, if there is one; `known` are known values of the mask's
        body.
        """
        scaling = self.found.scaling if in_units else None
        scaled = {} if scaling is None else {scaling.product: total}
        return self.leaves.score(total, loops, inside, {**(known or {}), **scaled})

    def finish(self, total: ir.Value, weighted: ir.Value, loops: Loops) -> None:
        """Apply the epilogue to an element and store it; `total` is the sum of its row's weights."""
        self.leaves.finish(total, self._converted(weighted), loops)

    def finished(self, total: ir.Value, weighted: ir.Value, loops: Loops) -> Mapping[ScheduleBuffer, ir.Value]:
        """Return the epilogue's results for an element, by buffer."""
        return self.leaves.finished(total, self._converted(weighted), loops)

    def _converted(self, weighted: ir.Value) -> ir.Value:
        (product,) = self.found.value.instance.block.outputs
        return convert_accumulator(weighted, product.element_type)

    # How far keys reach

    def seen(self, batch: Loops, first: Value, last: Value, by_all: bool = False) -> Value:
        """Return the end of the keys visible to some row from `first` to `last`, or to all of them."""
        reach = index(self.found.keys)
        for bound in self.found.bounds:
            limit = self._extreme(bound.limit, batch, first, last, not by_all)
            past = create("arith.addi", limit.type, limit, index(1))
            past = create("arith.maxsi", past.type, past, index(0))
            reach = create("arith.minsi", past.type, reach, past)
        return reach

    def limit(self, bound: Bound, row: Loops) -> Value:
        """Return the last key that a bound makes visible to a row."""
        return self.leaves.index(bound.limit, row)

    def _extreme(self, limit: IndexExpr, batch: Loops, first: Value, last: Value, highest: bool) -> ir.Value:
        """Return the largest, or smallest, value of an expression over consecutive rows."""
        rows = self.found.rows
        values = dict(batch)
        low, high = self.row(first), self.row(last)
        crosses = None
        for loop in rows[:-1]:
            other = compare("ne", low[loop], high[loop])
            crosses = other if crosses is None else create("arith.ori", other.type, crosses, other)
        for loop in rows:
            rises = limit.moves_along(loop) and limit.coefficient(loop) > 0
            end: Value = index(self.found.extents[loop] - 1 if rises == highest else 0)
            if loop == rows[-1]:
                # Rows that cross to the next iteration of an outer loop may have any index in the inner one.
                own = high[loop] if rises == highest else low[loop]
                end = own if crosses is None else create("arith.select", own.type, crosses, end, own)
            values[loop] = end
        return self.leaves.index(limit, values)


# Arithmetic of the softmax


def hidden(kind: ir.Type) -> Value:
    """Return the score of a masked key."""
    return emit_constant(float("-inf"), kind)


def above(peak: ir.Value) -> Value:
    """Return the row maximum to subtract from scores: zero if no key is visible."""
    zero = emit_constant(0.0, peak.type)
    return create("arith.select", peak.type, compare("gt", peak, hidden(peak.type)), peak, zero)


def weight(score: ir.Value, shift: Value) -> Value:
    """Return e^(score - shift)."""
    return Value(emit_intrinsic("exp", Value(score) - shift))


def larger(a: ir.Value, b: ir.Value) -> Value:
    return create("arith.maximumf", a.type, a, b, fastmath=ir.Attribute.parse("#arith.fastmath<nsz>"))
