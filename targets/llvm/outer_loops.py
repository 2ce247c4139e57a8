"""Indices of loops around register tiles, which LLVM takes for numbers that it knows nothing about.

LoopStrengthReduction looks for induction variables that all addresses in a loop have in common. In a kernel with
dynamic dims, which has several sizes of tiles, that takes longer than the rest of code generation, and keeps more
addresses in registers than there are. Only the loops of the tiles themselves are worth it.
"""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import create, inline_asm
from mirlo.dialects.tir.view import PRIM_FUNC
from mirlo.passes.schedule.loops import LOOP_ANNOTATION


def hide_outer_indices(module: ir.Module) -> None:
    """Pass the index of each loop around a register tile through assembly without instructions.

    Kernels without dynamic dims have few addresses that are not a number apart, and are left alone.
    """
    if any(_has_sizes(op.operation) for op in module.body.operations):
        loops: list[ir.Operation] = []
        _collect(module.operation, loops)
        for loop in loops:
            _hide(loop)


def _has_sizes(op: ir.Operation) -> bool:
    """Return whether an operation is a kernel that takes the values of dims."""
    if op.name != "func.func" or PRIM_FUNC not in op.attributes:
        return False
    kind = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
    return any(isinstance(type_, ir.IndexType) for type_ in kind.inputs)


def _collect(op: ir.Operation, loops: list[ir.Operation]) -> bool:
    """Collect the loops below an operation that have a loop over accumulators below them; return whether it has one."""
    has_tile = False
    for inner in _with_regions(op):
        is_around = _collect(inner, loops)
        if is_around and inner.name == "scf.for":
            loops.append(inner)
        has_tile = has_tile or is_around or _is_tile(inner)
    return has_tile


def _is_tile(op: ir.Operation) -> bool:
    return op.name == "scf.for" and LOOP_ANNOTATION in op.attributes and len(op.results) > 1


def _with_regions(op: ir.Operation) -> list[ir.Operation]:
    regions = [inner.operation for region in op.regions for block in region.blocks for inner in block.operations]
    return [inner for inner in regions if len(inner.regions)]


def _hide(loop: ir.Operation) -> None:
    block = loop.regions[0].blocks[0]
    index, i64 = block.arguments[0], ir.IntegerType.get_signless(64)
    with ir.InsertionPoint.at_block_begin(block), loop.location:
        cast = create("arith.index_cast", i64, index)
        same = create("arith.index_cast", index.type, inline_asm("", "=r,0", i64, cast))
    index.replace_all_uses_except(same, cast.owner.operation)
