"""Buffers larger than every device can bind: bound in parts, of which each access selects one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core.surgery import replace_op
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.value import compare, index
from mirlo.dialects.tir.buffers import UNBOUNDED, element_bytes
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.lower.calls import find
from mirlo.passes.registry import PassError
from mirlo.passes.schedule.loops import either
from mirlo.targets.gpu.program import SplitParameter

LIMIT = 1 << 27
"""Bytes that every Vulkan device can bind."""


def split_large(module: ir.Module, limit: int = LIMIT) -> dict[str, list[SplitParameter]]:
    """Split kernel parameters that are too large; return the splits by the kernel name that launches use."""
    result = {}
    for function in find(module, "gpu.func"):
        block = function.regions[0].blocks[0]
        large = [argument for argument in block.arguments if _bytes(argument.type) > limit]
        if not large:
            continue
        holder = function.parent
        assert holder is not None
        own = symbol_name(holder)
        name = f"{own}::{symbol_name(function)}"
        result[name] = [SplitParameter(argument.arg_number, _split(block, argument, limit)) for argument in large]
        for split in result[name][::-1]:
            block.erase_argument(split.position)
        kinds = [argument.type for argument in block.arguments]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kinds, []))
    return result


def _bytes(kind: ir.Type) -> int:
    if not isinstance(kind, ir.MemRefType) or UNBOUNDED in kind.shape:
        return 0  # the size of an unsized buffer is known when it is bound
    return math.prod(kind.shape) * element_bytes(kind.element_type)


def _split(block: ir.Block, argument: ir.BlockArgument, limit: int) -> int:
    """Add the parts to a kernel and rewrite all accesses; return the bytes of a part."""
    kind = argument.type
    total, size = math.prod(kind.shape), element_bytes(kind.element_type)
    count = 1 << (limit // size).bit_length() - 1
    parts = [
        block.add_argument(ir.MemRefType.get([min(count, total - at)], kind.element_type), argument.location)
        for at in range(0, total, count)
    ]
    for use in list(argument.uses):
        op = use.owner.operation
        if op.name not in ("memref.load", "memref.store"):
            raise PassError(f"'{op.name}' of a buffer of more than {limit} bytes cannot be split", op.location)
        _access(op, parts, kind.shape, count)
    return count * size


def _access(op: ir.Operation, parts: Sequence[ir.Value], shape: list[int], count: int) -> None:
    """Replace one access with accesses of all parts, of which one is executed."""
    loads = op.name == "memref.load"
    indices = list(op.operands)[1 if loads else 2 :]
    with ir.InsertionPoint(op), op.location:
        position = index(0)
        for value, extent in zip(indices, shape, strict=True):
            scaled = create("arith.muli", position.type, position, index(extent))
            position = create("arith.addi", position.type, scaled, value)
        which = create("arith.divui", position.type, position, index(count))
        there = create("arith.remui", position.type, position, index(count))
        loaded = _choose(op, parts, 0, which, there)
    replace_op(op, loaded)


def _choose(
    op: ir.Operation, parts: Sequence[ir.Value], number: int, which: ir.Value, there: ir.Value
) -> list[ir.Value]:
    def access() -> list[ir.Value]:
        if op.name == "memref.load":
            return [memref.LoadOp(parts[number], [there]).result]
        memref.StoreOp(op.operands[0], parts[number], [there])
        return []

    if number == len(parts) - 1:
        return access()
    here, types = compare("eq", which, index(number)), [result.type for result in op.results]
    return either(here, access, lambda: _choose(op, parts, number + 1, which, there), types)
