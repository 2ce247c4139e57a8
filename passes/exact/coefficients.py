"""Coefficients of sums that depend on indices only, as those of Winograd's transforms, as a block of their own.

A sum of products of elements by coefficients is a product of matrices once the coefficients are a tensor: a definition
computes each of them once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import clone_with
from mirlo.dialects.tir.block import SPATIAL, Block, Yield
from mirlo.dialects.tir.view import BlockView, OperandView, PrimView
from mirlo.passes.exact.products import LEAST_WIDTH, is_large, reads_axis
from mirlo.runtime.records import dataclass


def with_coefficients(function: ir.Operation) -> ir.Operation:
    """Return a copy of a prim function whose coefficients are tensors; the function itself if it has none."""
    positions = [i for i, block in enumerate(PrimView(function).blocks) if Coefficient.of(block) is not None]
    if not positions:
        return function
    copy = function.clone(ip=False).operation
    blocks = PrimView(copy).blocks
    for coefficient in (Coefficient.of(blocks[i]) for i in positions):
        assert coefficient is not None
        coefficient.split()
    return copy


@dataclass(frozen=True)
class Coefficient:
    """A value by which a block multiplies the elements that it sums, which depends on indices only."""

    block: BlockView
    value: ir.Value
    ops: Sequence[ir.Operation]
    """The operations that compute the value."""
    axes: Sequence[int]
    """The axes that they read the indices of, and those of the sum."""

    @staticmethod
    def of(block: BlockView) -> Coefficient | None:
        """Return the coefficient of a block that is a product of large matrices by it, None if there is none."""
        if not is_large(block) or not block.is_reduction or len(block.outputs) != 1:
            return None
        if len(block.inputs) != 1 or block.inputs[0].is_opaque:
            return None
        uses = list(block.input_arguments[0].uses)
        product = uses[0].owner.operation if len(uses) == 1 else None
        if product is None or product.name != "arith.mulf":
            return None
        value = product.operands[1 - uses[0].operand_number]
        needed = _needed_for(value, block)
        if needed is None:
            return None
        ops, arguments = needed
        axes = [axis for axis, each in enumerate(block.index_arguments) if each in arguments or axis in block.reduce]
        rows = [axis for axis in axes if axis in block.spatial and not reads_axis(block.inputs[0], axis)]
        if math.prod(block.domain[axis] for axis in rows) < LEAST_WIDTH:
            return None
        return Coefficient(block, value, ops, axes)

    def split(self) -> None:
        """Replace the block by one of the coefficients, and one that reads them."""
        block, view = self.block, self.block.op.opview
        with ir.InsertionPoint(block.op), block.op.location:
            coefficients = self._coefficients()
            operands = [*block.inputs, coefficients]
            unit = ir.UnitAttr.get()
            maps = [*(each.map for each in operands), block.outputs[0].map]
            sums = Block.build(
                [each.value for each in operands], result_types=[block.outputs[0].value.type], name=block.name,
                axes=block.axes, domain=block.domain, maps=ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
                outside=ir.ArrayAttr.get([unit if each.outside is None else each.outside for each in operands]),
                init=view.init,
            ).operation  # fmt: skip
        types = [argument.type for argument in block.body.arguments]
        place = block.rank + len(block.inputs)
        arguments = _add_body(sums, [*types[:place], self.value.type, *types[place:]])
        env: dict[ir.Value, ir.Value] = dict(
            zip(block.body.arguments, [*arguments[:place], *arguments[place + 1 :]], strict=True)
        )
        env[self.value] = arguments[place]
        _fill(sums, self._others(), block.yielded, env)
        block.op.results[0].replace_all_uses_with(sums.results[0])
        block.op.erase()

    def _others(self) -> list[ir.Operation]:
        """Return the operations that compute the sums of the products by a coefficient."""
        reached, ops = set(self.block.yielded), []
        for op in reversed(self.block.body_ops):
            if any(result in reached and result != self.value for result in op.results):
                ops.append(op)
                reached.update(op.operands)
        return ops[::-1]

    def _coefficients(self) -> OperandView:
        """Build the block of the coefficients; return how sums read them."""
        block = self.block
        extents = [block.domain[axis] for axis in self.axes]
        places = ir.AffineMap.get_identity(len(extents))
        tensor = Block.build(
            [], result_types=[ir.RankedTensorType.get(extents, self.value.type)], name=f"{block.name} coefficients",
            axes=[SPATIAL] * len(extents), domain=extents, maps=ir.ArrayAttr.get([ir.AffineMapAttr.get(places)]),
            init=ir.ArrayAttr.get([ir.UnitAttr.get()]),
        ).operation  # fmt: skip
        indices = _add_body(tensor, [ir.IndexType.get()] * len(extents))
        env = {block.index_arguments[axis]: index for axis, index in zip(self.axes, indices, strict=True)}
        _fill(tensor, self.ops, [self.value], env)
        reads = [ir.AffineDimExpr.get(axis) for axis in self.axes]
        return OperandView(tensor.results[0], ir.AffineMap.get(block.rank, 0, reads))


def _needed_for(value: ir.Value, block: BlockView) -> tuple[list[ir.Operation], set[ir.Value]] | None:
    """Return the operations that compute a value, and the indices that they read; None if it depends on elements."""
    reached, ops = {value}, []
    for op in reversed(block.body_ops):
        if any(result in reached for result in op.results):
            ops.append(op)
            reached.update(op.operands)
    arguments = {each for each in reached if isinstance(each.owner, ir.Block)}
    return None if arguments.difference(block.index_arguments) else (ops[::-1], arguments)


def _add_body(op: ir.Operation, types: Sequence[ir.Type]) -> list[ir.Value]:
    """Give a block a body; return the arguments of it."""
    return list(op.regions[0].blocks.append(*types, arg_locs=[op.location] * len(types)).arguments)


def _fill(
    op: ir.Operation, ops: Sequence[ir.Operation], yielded: Sequence[ir.Value], env: dict[ir.Value, ir.Value]
) -> None:
    """Copy operations to the body of a block, on the values of `env`; it yields the copies of some results."""
    with ir.InsertionPoint(op.regions[0].blocks[0]), op.location:
        for each in ops:
            copy = clone_with(each, [env[value] for value in each.operands])
            env.update(zip(each.results, copy.results, strict=True))
        Yield.build([env[value] for value in yielded], result_types=[])
