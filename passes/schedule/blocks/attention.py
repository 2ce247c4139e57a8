"""Attention matched in blocks: scores, mask, softmax, product with the values.

All blocks share one iteration space: the rows of scores (batches, heads, queries), then the keys, the head size, and
the value size. Every tensor is read at a position over these loops, whatever its layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.view import BlockView, OperandView
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.attention_mask import Bound, Scaling, scaling_of
from mirlo.passes.schedule.blocks.contraction.body import ProductInput
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel
from mirlo.passes.schedule.blocks.instance import BlockInstance
from mirlo.runtime.records import dataclass

REDUCTIONS = 4
"""Number of reductions in an attention: scores, their maximum, the sum of the weights, the product with the values."""


@dataclass(frozen=True)
class Read:
    """A tensor that one of the contractions reads: query, key or value."""

    instance: BlockInstance
    """The block of the contraction, used for this operand only."""
    operand: OperandView
    factor: ProductInput


@dataclass(frozen=True)
class AttentionBlocks:
    """The blocks of an attention; loops are numbered as in `extents`."""

    group: BlockGroup[LaneModel]
    extents: tuple[Dim, ...]
    """Extents of the loops: rows, then keys, head size, value size; the two sizes are static."""
    query: Read
    key: Read
    value: Read
    scores: ir.Value
    """The tensor of scores: the result of the first contraction."""
    mask: tuple[BlockInstance, ...]
    """Elementwise blocks on the scores, in order."""
    masked: ir.Value
    """The scores after the mask."""
    total: ir.Value
    """The sum of the weights of each row."""
    weighted: ir.Value
    """The result of the second contraction."""
    after: tuple[BlockInstance, ...]
    """Elementwise blocks on that result: the epilogue."""
    bounds: tuple[Bound, ...]
    scales_values: bool = False
    """Whether the weights are multiplied by the scales of the values, a second result of the mask, after their sum."""

    @property
    def key_loop(self) -> int:
        return len(self.extents) - 3

    @property
    def size_loop(self) -> int:
        return len(self.extents) - 2

    @property
    def value_loop(self) -> int:
        return len(self.extents) - 1

    @property
    def keys(self) -> Dim:
        return self.extents[-3]

    @property
    def size(self) -> int:
        size = self.extents[-2]
        assert isinstance(size, int)
        return size

    def size_along(self, loop: int) -> int:
        """Return the extent of a static loop: the head size or the value size."""
        return self.size if loop == self.size_loop else self.value_size

    @property
    def value_size(self) -> int:
        size = self.extents[-1]
        assert isinstance(size, int)
        return size

    @cached_property
    def batch(self) -> tuple[int, ...]:
        """Return the row loops that keys or values depend on."""
        dims = [dim for read in (self.key, self.value) for dim in read.instance.dims(read.operand)]
        moving = {axis for dim in dims for axis in dim.variables()}
        return tuple(axis for axis in range(self.key_loop) if axis in moving)

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """Return the other row loops: queries, and heads that share their keys."""
        batch = self.batch
        return tuple(axis for axis in range(self.key_loop) if axis not in batch)

    @cached_property
    def scaling(self) -> Scaling | None:
        """Return the scaling of all scores if the mask, apart from it, only hides scores."""
        return scaling_of(self.mask[0].block, self.scores) if len(self.mask) == 1 else None

    def count(self, loops: Sequence[int]) -> Dim:
        """Return the number of iterations of these loops."""
        return D.product([self.extents[loop] for loop in loops])

    @property
    def is_dynamic(self) -> bool:
        """Return whether the number of rows or keys is dynamic."""
        return not all(isinstance(extent, int) for extent in self.extents)

    @property
    def sum_type(self) -> ir.F32Type:
        """Return the type of the accumulators."""
        result: ir.F32Type = self.scores.type.element_type
        return result


def cannot_be_attention(blocks: Sequence[BlockView]) -> Decline | None:
    """Decline early if there are too few reductions for two contractions and a softmax."""
    reductions = sum(block.is_reduction for block in blocks)
    return decline("not two products and a softmax", reductions=reductions) if reductions < REDUCTIONS else None
