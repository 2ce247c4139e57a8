"""Search for an attention in a group of blocks: its parts are matched one after another, in their order."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr, loop_index, number
from mirlo.dialects.tir.view import BlockView, OperandView
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.attention import REDUCTIONS, AttentionBlocks, Read
from mirlo.passes.schedule.blocks.attention_mask import bounds_of, float_constant
from mirlo.passes.schedule.blocks.combine import Reducer, reducer_of
from mirlo.passes.schedule.blocks.contraction.body import MultiplyAdd, ProductInput, match_multiply_add
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel, opaque_of_group
from mirlo.passes.schedule.blocks.instance import BlockInstance

_ABOVE = 2
"""Predicate of `arith.cmpf`: ordered and greater."""


def find_attention(group: BlockGroup[LaneModel]) -> AttentionBlocks | Decline:
    """Match the parts of an attention in a group of blocks."""
    refusal = opaque_of_group(group)
    if refusal is not None:
        return refusal
    return _Finder(group).find()


class _Finder:
    def __init__(self, group: BlockGroup[LaneModel]):
        self.group = group
        self.blocks = iter(group.blocks)
        self.extents: tuple[Dim, ...] = ()
        self.loops: dict[ir.Value, list[int]] = {}
        """Loops along the dims of the tensors that the group computes."""

    def find(self) -> AttentionBlocks | Decline:
        try:
            return self._find()
        except StopIteration:
            return decline("the reductions are not in the order of an attention")

    def _find(self) -> AttentionBlocks | Decline:
        first = self.group.blocks[0]
        sums = [b for b in self.group.blocks if b.is_reduction]
        if len(sums) != REDUCTIONS:
            return decline("not two products and a softmax", reductions=len(sums))
        scored, weighted = (match_multiply_add(block) for block in (sums[0], sums[3]))
        if isinstance(scored, Decline):
            return scored
        if isinstance(weighted, Decline):
            return weighted
        starts = (0.0, float("-inf"), 0.0, 0.0)
        for block, start in zip(sums, starts, strict=True):
            if [float(value.value) for value in block.init if value is not None] != [start]:
                return decline(f"a reduction does not start from {start}", block=block.name)
        if first is not sums[0]:
            return decline("something is computed before the scores", block=first.name)
        rank = len(first.outputs[0].shape)
        values = sums[3].outputs[0].shape
        if len(first.reduce) != 1 or len(sums[3].reduce) != 1 or rank < 2 or len(values) != rank:
            return decline("the products sum over several axes")
        self.extents = (*first.outputs[0].shape, first.domain[first.reduce[0]], values[-1])
        for name, extent in (("heads", self.extents[-2]), ("values", self.extents[-1])):
            if not isinstance(extent, int):
                return decline(f"the size of {name} is known at run time only", size=str(extent))
        self.key_loop, self.size_loop, self.value_loop = rank - 1, rank, rank + 1
        return self._parse((scored, weighted))

    def _parse(self, products: Sequence[MultiplyAdd]) -> AttentionBlocks | Decline:
        scores = next(self.blocks)
        row = list(range(self.key_loop))
        self.loops[scores.outputs[0].value] = [*row, self.key_loop]
        axes = self._axes(scores, [*row, self.key_loop], self.size_loop)
        if axes is None:
            return decline("an output is not indexed by plain axes", block=scores.name)
        query, key = self._roles([self._read(scores, axes, each) for each in (products[0].lhs, products[0].rhs)])
        after_scores = self._mask(scores)
        if isinstance(after_scores, Decline):
            return after_scores
        mask, masked, factors, block = after_scores
        total = self._softmax(block, masked, factors)
        if isinstance(total, Decline):
            return total
        weights, total_value, block = total
        value = self._values(block, products[1], weights)
        if isinstance(value, Decline):
            return value
        weighted = block.outputs[0].value
        after: list[BlockInstance] = []
        for rest in self.blocks:
            instance = self._elementwise(
                rest, [*row, self.value_loop], {weighted, total_value, *self._computed_values(after)}
            )
            if isinstance(instance, Decline):
                return instance
            after.append(instance)
        if not self.group.kept <= self._computed_values(after):
            return decline("scores or weights are used by something else")
        if self._moves(query, self.key_loop):
            return decline("both factors of the scores are indexed by the keys")
        bounds = tuple(bounds_of(mask[-1], self.key_loop)) if mask else ()
        return AttentionBlocks(
            self.group, self.extents, query, key, value, scores.outputs[0].value, tuple(mask), masked, total_value,
            weighted, tuple(after), bounds, bool(factors),
        )  # fmt: skip

    def _values(self, block: BlockView, product: MultiplyAdd, weights: ir.Value) -> Read | Decline:
        """Match the product of the weights, as they are, with the values along the keys; return how those are read."""
        row = list(range(self.key_loop))
        sides = (product.lhs, product.rhs)
        own = [factor for factor in sides if factor.operand.value == weights]
        if len(own) != 1 or own[0].body_ops:
            return decline("the second product does not take the weights as they are", block=block.name)
        self.loops[block.outputs[0].value] = [*row, self.value_loop]
        axes = self._axes(block, [*row, self.value_loop], self.key_loop)
        if axes is None or not self._same(self._instance(block, axes), own[0].operand, [*row, self.key_loop]):
            return decline("the second product does not sum over the keys", block=block.name)
        return self._read(block, axes, sides[0] if own[0] is sides[1] else sides[1])

    def _mask(self, scores: BlockView) -> tuple[list[BlockInstance], ir.Value, set[ir.Value], BlockView] | Decline:
        """Match what is done to the scores; return the blocks, the result, the scales of values, and the next block."""
        masked = scores.outputs[0].value
        mask: list[BlockInstance] = []
        factors: set[ir.Value] = set()
        block = next(self.blocks)
        while not block.is_reduction:
            known = {scores.outputs[0].value, *self._computed_values(mask)}
            instance = self._elementwise(block, [*range(self.key_loop), self.key_loop], known, outputs=2)
            if isinstance(instance, Decline):
                return instance
            mask.append(instance)
            masked, *others = (output.value for output in block.outputs)
            factors.update(others)
            block = next(self.blocks)
        return mask, masked, factors, block

    def _softmax(
        self, block: BlockView, masked: ir.Value, factors: set[ir.Value]
    ) -> tuple[ir.Value, ir.Value, BlockView] | Decline:
        """Match the weights e^(score - maximum), undivided; return them, their sums, and the next block.

        With the scales of values, `factors`, the weights that are returned are multiplied by them.
        """
        row = list(range(self.key_loop))
        if not self._reduces(block, "arith.maximumf", masked):
            return decline("the first reduction of scores is not their maximum", block=block.name)
        self.loops[block.outputs[0].value] = row
        peaks = {block.outputs[0].value}
        block = next(self.blocks)
        if not block.is_reduction and len(block.outputs[0].shape) == len(row):
            instance = self._elementwise(block, row, peaks)
            peak = _guarded(block.yielded[0])
            # A missing maximum must not compare equal to an absent value.
            if isinstance(instance, Decline) or peak is None or peak != block.input_arguments[0]:
                return decline("something is done to the maximum of a row", block=block.name)
            peaks = {block.outputs[0].value}
            block = next(self.blocks)
        instance = self._elementwise(block, [*row, self.key_loop], {masked, *peaks})
        if isinstance(instance, Decline) or not _is_weight(block, masked, peaks):
            return decline("the weights are not e^(score - maximum)", block=block.name)
        weights = block.outputs[0].value
        block = next(self.blocks)
        if not self._reduces(block, "arith.addf", weights):
            return decline("the weights are not summed up by themselves", block=block.name)
        self.loops[block.outputs[0].value] = row
        total, block = block.outputs[0].value, next(self.blocks)
        if not factors or block.is_reduction:
            return weights, total, block
        scaled = self._elementwise(block, [*row, self.key_loop], {weights, *factors})
        return scaled if isinstance(scaled, Decline) else (block.outputs[0].value, total, next(self.blocks))

    def _reduces(self, block: BlockView, kind: str, value: ir.Value) -> bool:
        """Return whether a block reduces a tensor over all keys of each row."""
        if not block.is_reduction or len(block.inputs) != 1 or block.inputs[0].value != value:
            return False
        reducer: Reducer | None = reducer_of(block)
        row = list(range(self.key_loop))
        axes = self._axes(block, row, self.key_loop) if len(block.reduce) == 1 else None
        return (
            reducer is not None
            and axes is not None
            and [combiner.kind.op for combiner in reducer.combiners] == [kind]
            and reducer.contributions == block.input_arguments
            and self._same(self._instance(block, axes), block.inputs[0], [*row, self.key_loop])
        )

    def _elementwise(
        self, block: BlockView, loops: list[int], known: set[ir.Value], outputs: int = 1
    ) -> BlockInstance | Decline:
        """Match an elementwise block over these loops, with this many outputs at most.

        Of the group's values, it may read only `known` ones, elementwise.
        """
        first, *others = block.outputs
        if block.is_reduction or len(block.outputs) > outputs or any(other.map != first.map for other in others):
            return decline("not an elementwise block", block=block.name)
        axes = self._axes_of_input(block, loops, known) or self._axes(block, loops, None)
        written = None if axes is None else self._written(block, axes)
        if axes is None or written is None:
            return decline("an output is not indexed by plain axes", block=block.name)
        instance = self._instance(block, axes)
        for operand in block.inputs:
            if operand.value not in self.loops:
                continue
            if operand.value not in known or not self._same(instance, operand, self.loops[operand.value]):
                return decline("a block reads a value of the group at another index", block=block.name)
        self.loops.update({output.value: written for output in block.outputs})
        return instance

    def _axes_of_input(self, block: BlockView, loops: Sequence[int], known: set[ir.Value]) -> list[int] | None:
        """Match each axis to a loop by a read of a tensor over all loops.

        The block may list its axes in another order.
        """
        for operand in block.inputs:
            axes = self.loops.get(operand.value) if operand.value in known else None
            if axes is not None and len(axes) == len(loops) and operand.map is not None:
                return self._matched(block, operand, axes, {})
        return None

    @staticmethod
    def _written(block: BlockView, axes: Sequence[int]) -> list[int] | None:
        """Return the loop along each dim of the output; None for dims of extent 1."""
        dims = []
        for expression, size in zip(block.outputs[0].map.results, block.outputs[0].shape, strict=True):
            if isinstance(expression, ir.AffineDimExpr):
                dims.append(axes[expression.position])
            elif size == 1:
                dims.append(-1)
            else:
                return None
        moving = [loop for loop in dims if loop >= 0]
        return dims if len(set(moving)) == len(moving) else None

    def _axes(self, block: BlockView, loops: list[int], reduced: int | None) -> list[int] | None:
        """Match each axis of a block to a loop by how its output is written."""
        if len(block.outputs) != 1 or len(block.outputs[0].shape) != len(loops):
            return None
        if block.reduce and reduced is None:
            return None
        summed = {axis: reduced for axis in block.reduce if reduced is not None}
        return self._matched(block, block.outputs[0], loops, summed)

    def _matched(
        self, block: BlockView, operand: OperandView, loops: Sequence[int], summed: dict[int, int]
    ) -> list[int] | None:
        """Match each axis to a loop by an operand whose dims run along these loops."""
        matched: dict[int, int] = {}
        for expression, loop in zip(operand.map.results, loops, strict=True):
            if isinstance(expression, ir.AffineDimExpr) and expression.position not in matched:
                matched[expression.position] = loop
            elif loop >= 0 and self.extents[loop] != 1:
                return None
        matched |= summed
        for axis in range(block.rank):
            if axis not in matched and block.domain[axis] != 1:
                return None
            if axis in matched and matched[axis] >= 0 and block.domain[axis] != self.extents[matched[axis]]:
                return None
        return [matched.get(axis, -1) for axis in range(block.rank)]

    def _instance(
        self, block: BlockView, axes: Sequence[int], roots: Sequence[ir.Value] | None = None
    ) -> BlockInstance:
        return BlockInstance(block, [self._along(loop) for loop in axes], self.extents, roots)

    def _along(self, loop: int) -> IndexExpr:
        return number(0) if loop < 0 or self.extents[loop] == 1 else loop_index(loop)

    def _same(self, instance: BlockInstance, operand: OperandView, loops: Sequence[int]) -> bool:
        if operand.map is None or operand.outside is not None:
            return False
        return list(instance.dims(operand)) == [self._along(loop) for loop in loops]

    def _read(self, block: BlockView, axes: Sequence[int], factor: ProductInput) -> Read:
        return Read(self._instance(block, axes, [factor.result]), factor.operand, factor)

    def _roles(self, first: Sequence[Read]) -> tuple[Read, Read]:
        """Return query and key of the first contraction: the query is the operand that does not depend on the keys."""
        swapped = self._moves(first[0], self.key_loop) and not self._moves(first[1], self.key_loop)
        return (first[1], first[0]) if swapped else (first[0], first[1])

    @staticmethod
    def _moves(read: Read, loop: int) -> bool:
        return any(loop in dim.variables() for dim in read.instance.dims(read.operand))

    @staticmethod
    def _computed_values(instances: Sequence[BlockInstance]) -> set[ir.Value]:
        return {output.value for instance in instances for output in instance.block.outputs}


def _guarded(value: ir.Value) -> ir.Value | None:
    """Match a maximum that is replaced by zero where it is minus infinity, as in a row without keys."""
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "arith.select":
        return None
    test, yes, no = value.owner.operation.operands
    if float_constant(no) != 0.0 or isinstance(test.owner, ir.Block):
        return None
    comparison = test.owner.operation
    if comparison.name != "arith.cmpf" or comparison.attributes["predicate"].value != _ABOVE:
        return None
    left, right = comparison.operands
    return yes if left == yes and float_constant(right) == float("-inf") else None


def _is_weight(block: BlockView, masked: ir.Value, peaks: set[ir.Value]) -> bool:
    arguments = {o.value: a for a, o in zip(block.input_arguments, block.inputs, strict=True)}
    value = block.yielded[0]
    if len(block.inputs) != 2 or isinstance(value.owner, ir.Block) or value.owner.operation.name != "tir.exp":
        return False
    difference = value.owner.operation.operands[0].owner
    if isinstance(difference, ir.Block) or difference.operation.name != "arith.subf":
        return False
    score, peak = difference.operation.operands
    guarded = _guarded(peak)
    peak = peak if guarded is None else guarded
    if masked not in arguments or score != arguments[masked]:
        return False
    return any(peak == arguments[value] for value in peaks if value in arguments)
