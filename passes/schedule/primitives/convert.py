"""The schedule primitive `convert`: a copy of an operand of a register tile, converted to the type it multiplies."""

from __future__ import annotations

from collections.abc import Callable

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import create
from mirlo.dialects.tir.block import SPATIAL, Block, Yield
from mirlo.dialects.tir.view import BlockView
from mirlo.passes.schedule.blocks.contraction.body import ProductInput, widened
from mirlo.passes.schedule.primitives.register_tile import sides_of
from mirlo.passes.schedule.primitives.tree import BlockLeaf, Root, ScheduleError, TileLeaf, TreeBlock, around


def convert(root: Root, copy: BlockLeaf) -> None:
    """Convert elements where they are copied, in place of each product: the copy has the type of accumulators."""
    buffer = copy.writes[0].buffer
    readers = [leaf for leaf in root.leaves() for access in leaf.reads if access.buffer is buffer]
    tiles = [loop.form for reader in readers for loop in around(reader) if isinstance(loop.form, TileLeaf)]
    if copy.view is not None or not tiles or len(tiles) != len(readers):
        raise ScheduleError(f"convert: expected a copy that register tiles read, found '{copy.name}'")
    tile, (factor, is_row) = tiles[0], _factor_of(tiles[0], copy)
    if any(_factor_of(each, copy)[1] != is_row or each.instruction != tile.instruction for each in tiles[1:]):
        raise ScheduleError(f"convert: tiles read '{copy.name}' as rows and as columns, or by several instructions")
    instruction, element = tile.instruction, buffer.element
    if instruction.group == 1:
        kind = tile.product.accumulate_type
        compute_in_copy(root, copy, kind, lambda value: widened(factor.emit(value, 1), kind))
    elif instruction.widened or instruction.flips and is_row:
        kind = instruction.prepared_type(element)
        compute_in_copy(root, copy, kind, lambda value: instruction.prepared(factor, value, is_row))
    else:
        raise ScheduleError(f"convert: '{instruction.name}' multiplies elements as they are in memory")
    for reader in readers:
        for access in reader.reads:
            access.is_converted = access.is_converted or access.buffer is buffer


def compute_in_copy(root: Root, copy: BlockLeaf, kind: ir.Type, emit: Callable[[ir.Value], ir.Value]) -> None:
    """Store in a copy what is emitted for each element, of this type."""
    buffer = copy.writes[0].buffer
    for writer in root.leaves():
        if any(access.buffer is buffer for access in writer.writes):
            view = _block(root, len(writer.domain), buffer.element, kind, emit)
            writer.block = TreeBlock(writer.kinds, writer.domain, view)
    buffer.element = kind


def _factor_of(tile: TileLeaf, copy: BlockLeaf) -> tuple[ProductInput, bool]:
    """Return the factor of a product that reads a copy, and whether it is that of the rows."""
    buffer = copy.writes[0].buffer
    factors = [
        (factor, is_row)
        for (factor, access), is_row in zip(sides_of(tile), (True, False), strict=True)
        if access.buffer is buffer
    ]
    if len(factors) != 1:
        raise ScheduleError(f"convert: '{tile.leaf.name}' multiplies elements of '{buffer.name}' with each other")
    return factors[0]


def _block(root: Root, rank: int, element: ir.Type, kind: ir.Type, emit: Callable[[ir.Value], ir.Value]) -> BlockView:
    """Return a block of one element for each axis that computes what is emitted for it: its body alone is used."""
    location = ir.Location.unknown(root.view.op.context)
    with location:
        module = ir.Module.create()
        source, result = (ir.RankedTensorType.get([1] * rank, each) for each in (element, kind))
        identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(rank))
        with ir.InsertionPoint(module.body):
            block = Block.build(
                [create("ub.poison", source)], result_types=[result], name="convert", axes=[SPATIAL] * rank,
                domain=[1] * rank, maps=ir.ArrayAttr.get([identity] * 2), init=ir.ArrayAttr.get([ir.UnitAttr.get()]),
            )  # fmt: skip
        body = block.operation.regions[0].blocks.append(*[ir.IndexType.get()] * rank, element)
        with ir.InsertionPoint(body):
            Yield.build([emit(body.arguments[rank])], result_types=[])
    root.modules.append(module)
    return BlockView(block)
