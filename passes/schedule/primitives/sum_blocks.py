"""Loops of a reduction in blocks: each block adds up from zero, and is then added to the accumulators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.dialects.bindings import ir, scf
from mirlo.dialects.core.value import Value, create, index
from mirlo.passes.schedule.primitives.registers import LAST_BLOCKS, Accumulators, Carried
from mirlo.runtime.records import dataclass

SUM_BLOCK = 512
"""Products of floats that an accumulator adds up from zero: sums of 32,768 have an error of 4e-7, without 3e-6."""
_MOST_STEPS = 16
"""A multiple of the k-steps that a tile unrolls: blocks begin at multiples of it, whatever the tile."""


def sum_block(depth: int) -> int:
    """Return the products that are added up from zero, of this many along K; 0 for all of them."""
    if depth <= SUM_BLOCK:
        return 0
    return -(-depth // (-(-depth // SUM_BLOCK) * _MOST_STEPS)) * _MOST_STEPS


@dataclass(frozen=True)
class SumBlocks:
    """Emits the loop over blocks of a reduction around the loop over the iterations of a block."""

    accumulators: Accumulators
    length: int | None
    """How far the loop counts, if that is known."""
    step: int
    emit_loop: Callable[[ir.Value, ir.Value, Carried], Carried]
    """Emits the iterations from one to another one, with accumulators."""

    def emit(self, low: ir.Value, high: ir.Value, held: Carried, blocks: Sequence[int | None]) -> Carried:
        """Emit iterations in blocks of these sizes, the largest first; None where only the run time knows one."""
        if not blocks:
            return self.emit_loop(low, high, held)
        size, by = blocks[0], self._step_of(low, high, blocks)
        loop = scf.ForOp(low, high, by, held)
        with ir.InsertionPoint(loop.body):
            end: ir.Value = Value(loop.induction_variable) + by
            if size is None or self.length is None or self.length % (size * self.step):
                end = Value(end).minimum(high)
            block = self.emit(loop.induction_variable, end, self.accumulators.zeros(), blocks[1:])
            scf.YieldOp(self.accumulators.combine(Carried(loop.inner_iter_args), block))
        return list(loop.results)

    def _step_of(self, low: ir.Value, high: ir.Value, blocks: Sequence[int | None]) -> ir.Value:
        """Emit the step of a loop over blocks, the largest of these."""
        if blocks[0] is not None:
            return index(blocks[0] * self.step)
        least = self.step * (next(iter(blocks[1:]), None) or 1)
        count = Value(create("arith.ceildivsi", high.type, Value(high) - low, index(LAST_BLOCKS * least)))
        return count.maximum(1) * least
