"""The schedule primitive `convert`: a copy of an operand of a register tile, converted to the type it multiplies."""

from __future__ import annotations

from collections.abc import Callable

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import BlockView
from mirlo.passes.schedule.blocks.contraction.body import ProductInput, widened
from mirlo.passes.schedule.primitives.register_tile import sides_of
from mirlo.passes.schedule.primitives.tree import BlockLeaf, Root, ScheduleError, TileLeaf, around

_BLOCK = """
func.func private @convert(%x: tensor<{shape}{element}>) -> tensor<{shape}{result}> attributes {{tir.prim_func}} {{
  %y = "tir.block"(%x) ({{
  ^bb0({indices}, %value: {element}):
    %0 = ub.poison : {result}
    "tir.yield"(%0) {{operandSegmentSizes = array<i32: 1, 0, 0, 0>}} : ({result}) -> ()
  }}) {{axes = [{axes}], domain = [{domain}], init = [unit], name = "convert",
    maps = [affine_map<({dims}) -> ({dims})>, affine_map<({dims}) -> ({dims})>],
    operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
    resultSegmentSizes = array<i32: 1, 0, 0, 0>}} : (tensor<{shape}{element}>) -> tensor<{shape}{result}>
  return %y : tensor<{shape}{result}>
}}
"""
"""A block of one element for each axis: its body alone is used."""


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
            writer.view = _block(root, len(writer.domain), buffer.element, kind, emit)
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
    """Return a block that computes what is emitted for an element."""
    dims = [f"d{i}" for i in range(rank)]
    text = _BLOCK.format(
        shape="1x" * rank, element=element, result=kind, indices=", ".join(f"%i{i}: index" for i in range(rank)),
        axes=", ".join(['"spatial"'] * rank), domain=", ".join(["1"] * rank), dims=", ".join(dims),
    )  # fmt: skip
    module = ir.Module.parse(text, root.view.op.context)
    root.modules.append(module)
    (function,) = module.body.operations
    block, *_ = function.operation.regions[0].blocks[0].operations
    view = BlockView(block)
    *_, terminator = view.body.operations
    with ir.InsertionPoint(terminator), ir.Location.unknown(root.view.op.context):
        terminator.operation.operands[0] = emit(view.input_arguments[0])
    view.body_ops[0].erase()
    return view
