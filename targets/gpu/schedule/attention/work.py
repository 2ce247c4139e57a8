"""Shared code of all attention kernels: row indices, masks on scores, visible keys, finished rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.core.value import Value, index
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.dialects.tir.intrinsics import emit as emit_intrinsic
from mirlo.dialects.tir.scalars import compare
from mirlo.dialects.tir.view import OperandView
from mirlo.passes.schedule.blocks.attention import AttentionBlocks, Read
from mirlo.passes.schedule.blocks.attention_mask import Bound
from mirlo.passes.schedule.blocks.contraction.body import convert_accumulator, widened
from mirlo.passes.schedule.blocks.evaluate import Iteration, TensorBuffers
from mirlo.passes.schedule.blocks.space import BlockInstance
from mirlo.targets.gpu.schedule.launch import split

Loops = Mapping[int, Value]
"""The index of each known loop."""


class Work:
    """An attention, and the memory that its kernels use."""

    def __init__(self, attention: AttentionBlocks, memory: TensorBuffers, times: Dim = 1):
        self.found = attention
        self.times = times
        """How often the host launches the kernels: once, or not at all if run-time sizes need others."""
        self.memory = memory
        self.batches = attention.count(attention.batch)
        self.rows = attention.count(attention.rows)
        scaling = attention.scaling
        self.factor_of_scores = None if scaling is None else scaling.factor
        self.inside = tuple(
            instance.assuming({bound.condition: True for bound in attention.bounds}) for instance in attention.mask
        )

    def touch(self) -> None:
        """Make the views of all buffers outside of the kernels."""
        attention = self.found
        own = {attention.scores, attention.total, attention.weighted}
        instances = [read.instance for read in (attention.query, attention.key, attention.value)] + [
            *attention.mask,
            *attention.after,
        ]
        for instance in (*attention.mask, *attention.after):
            own |= {output.value for output in instance.block.outputs}
        for instance in instances:
            for operand in instance.needed_inputs:
                if operand.value not in own:
                    self.memory.slot(operand.value)
        for _, output in self.kept:
            self.memory.slot(output.value)

    # Positions

    def batch(self, number: ir.Value) -> dict[int, Value]:
        """Return the loop indices of a batch."""
        return self._loops(self.found.batch, number)

    def row(self, number: ir.Value) -> dict[int, Value]:
        """Return the loop indices of a row within a batch."""
        return self._loops(self.found.rows, number)

    def _loops(self, loops: Sequence[int], number: ir.Value) -> dict[int, Value]:
        return dict(zip(loops, split(number, [self.found.extents[loop] for loop in loops]), strict=True))

    def indices(self, loops: Loops) -> list[Value | None]:
        """Return loop indices in the order that points take."""
        return [loops.get(loop) for loop in range(len(self.found.extents))]

    def position(self, read: Read, loops: Loops) -> ir.Value:
        """Return the position of an operand's element in memory."""
        slot = self.memory.slot(read.operand.value)
        point = Iteration(self.memory, self.indices(loops))
        return point.first(read.instance.flat(read.operand, slot.strides))

    # Values

    def factor(self, read: Read, loops: Loops) -> ir.Value:
        """Return an operand of one of the products, in the accumulator type."""
        point = Iteration(self.memory, self.indices(loops))
        point.run(read.instance)
        return widened(point.find(read.factor.result), self.found.sum_type)

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
        instances = self.inside if inside else self.found.mask
        scaling = self.found.scaling if in_units else None
        known = dict(known or {})
        if scaling is not None:
            known[scaling.product] = total
        return self._chain(instances, {self.found.scores: total}, loops, known).get(self.found.masked, total)

    def finish(self, total: ir.Value, weighted: ir.Value, loops: Loops) -> None:
        """Apply the epilogue to an element and store it; `total` is the sum of its row's weights."""
        results = self.finished(total, weighted, loops)
        point = Iteration(self.memory, self.indices(loops))
        for instance, output in self.kept:
            point.store(instance, output, results[output.value])

    def finished(self, total: ir.Value, weighted: ir.Value, loops: Loops) -> dict[ir.Value, ir.Value]:
        """Return the epilogue's results for an element, by tensor."""
        attention = self.found
        (product,) = attention.value.instance.block.outputs
        held = {attention.total: total, attention.weighted: convert_accumulator(weighted, product.element_type)}
        return self._chain(attention.after, held, loops)

    @property
    def kept(self) -> list[tuple[BlockInstance, OperandView]]:
        """Return the stored outputs and the blocks that compute them."""
        attention = self.found
        outputs = [(instance, output) for instance in attention.after for output in instance.block.outputs]
        return [(instance, output) for instance, output in outputs if output.value in attention.group.kept]

    def _chain(
        self,
        instances: Sequence[BlockInstance],
        held: dict[ir.Value, ir.Value],
        loops: Loops,
        known: dict[ir.Value, ir.Value] | None = None,
    ) -> dict[ir.Value, ir.Value]:
        """Apply elementwise blocks to values in registers at one point; return their results by tensor."""
        produced = {instance.block.outputs[0].value: instance.roots[0] for instance in instances}
        point = Iteration(self.memory, self.indices(loops), produced, held, known)
        for instance in instances:
            point.run(instance)
        return {value: point.find(root) for value, root in produced.items()}

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

    def limit(self, bound: Bound, row: Loops) -> ir.Value:
        """Return the last key that a bound makes visible to a row."""
        return Iteration(self.memory, self.indices(row)).first(bound.limit)

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
        return Iteration(self.memory, self.indices(values)).first(limit)


# Arithmetic of the softmax


def hidden(kind: ir.Type) -> Value:
    """Return the score of a masked key."""
    return emit_constant(float("-inf"), kind)


def above(peak: ir.Value) -> Value:
    """Return the row maximum to subtract from scores: zero if no key is visible."""
    zero = emit_constant(0.0, peak.type)
    return create("arith.select", peak.type, compare("gt", peak, hidden(peak.type)), peak, zero)


def weight(score: ir.Value, shift: Value) -> ir.Value:
    """Return e^(score - shift)."""
    return emit_intrinsic("exp", create("arith.subf", score.type, score, shift))


def larger(a: ir.Value, b: ir.Value) -> Value:
    return create("arith.maximumf", a.type, a, b, fastmath=ir.Attribute.parse("#arith.fastmath<nsz>"))


def plus(a: ir.Value, b: ir.Value) -> Value:
    return create("arith.addf", a.type, a, b)


def times(a: ir.Value, b: ir.Value) -> Value:
    return create("arith.mulf", a.type, a, b)
