"""Conversion of kernel parameters to Vulkan's form: unsized buffers, and scalars in a buffer of their own."""

from __future__ import annotations

from mirlo.dialects.bindings import arith, ir, memref
from mirlo.dialects.core.value import index
from mirlo.dialects.tir.buffers import UNBOUNDED
from mirlo.passes.lower.calls import find

SCALARS = "gpu.scalars"
"""Unit attribute of a kernel whose last buffer has its scalar arguments."""


def convert_arguments(module: ir.Module | ir.OpView) -> None:
    """Pass scalar arguments in one more buffer, the last one, and give unsized buffers the type that shaders use."""
    for function in find(module, "gpu.func"):
        block = function.regions[0].blocks[0]
        for argument in block.arguments:
            kind = argument.type
            if isinstance(kind, ir.MemRefType) and UNBOUNDED in kind.shape:
                argument.set_type(ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], kind.element_type))
        numbers = [argument for argument in block.arguments if isinstance(argument.type, ir.IndexType)]
        if numbers:
            _through_buffer(block, numbers)
            function.attributes[SCALARS] = ir.UnitAttr.get()
        types = [argument.type for argument in block.arguments]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))


def _through_buffer(block: ir.Block, numbers: list[ir.BlockArgument]) -> None:
    i32 = ir.IntegerType.get_signless(32)
    location = numbers[0].location
    buffer = block.add_argument(ir.MemRefType.get([len(numbers)], i32), location)
    with ir.InsertionPoint.at_block_begin(block), location:
        for place, number in enumerate(numbers):
            loaded = memref.LoadOp(buffer, [index(place)]).result
            number.replace_all_uses_with(arith.IndexCastOp(ir.IndexType.get(), loaded).result)
    for number in numbers[::-1]:
        block.erase_argument(number.arg_number)
