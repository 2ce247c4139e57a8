"""Views of whole buffers in one dim, which schedules read and write, without the descriptors of all dims.

Upstream lowers `memref.collapse_shape` in a pass that looks for a dozen patterns at each operation of a module, and a
buffer to a structure with a size and a stride for each dim, which would be up to a quarter of the LLVM IR of a kernel.
A buffer that is only seen as one dim becomes one of one dim: an argument, to which the same pointer is passed, and
scratch memory. Other views become casts, which are lowered by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Container

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core.surgery import attributes_of
from mirlo.dialects.core.symbols import symbol_name
from mirlo.runtime.records import dataclass

_EXPANDED = ("memref.subview", "memref.expand_shape", "memref.collapse_shape", "memref.extract_")
"""The beginnings of the names of the operations that `expand-strided-metadata` lowers."""
SCRATCH = (memref.AllocaOp, memref.ViewOp)
"""Scratch memory of a kernel: on the stack, or a part of a buffer that its caller passes."""
_CALLED = re.compile(r'\b(?:call |callee = )@("[^"]*"|[\w.$-]+)')
"""Matches the name of a function that is called."""
_CALLS = ("call @", "callee = @")
"""What is in the text of a module with such a name: the expression takes a tenth of the time of parsing the module."""


def flatten_views(module: ir.Module, text: str) -> bool:
    """Replace views of contiguous buffers of constant size in one dim; return whether other views are left.

    `text` is that of the module. Views in loops are left, other than those of arguments and of scratch memory.
    """
    left = sum(map(text.count, _EXPANDED))
    if not left and "memref.view" not in text:
        return False
    called = {name.strip('"') for name in _CALLED.findall(text)} if any(map(text.__contains__, _CALLS)) else ()
    for function in module.body.operations:
        if _is_called_from_outside(function.operation, called):
            left -= flatten_arguments(function.operation)
    for function in module.body.operations:
        for region in function.operation.regions:
            for block in region.blocks:
                for memory in [op for op in block.operations if isinstance(op, SCRATCH)]:
                    left -= flatten_scratch(memory.operation)
                for op in list(block.operations):
                    if isinstance(op, memref.CollapseShapeOp) and _is_contiguous(op):
                        _flatten(op.operation)
                        left -= 1
    return left > 0


def _is_called_from_outside(function: ir.Operation, called: Container[str]) -> bool:
    """Return whether a function has a body and is called through a pointer only."""
    if function.name != "func.func" or not len(function.regions[0].blocks):
        return False
    return "sym_visibility" not in function.attributes and symbol_name(function) not in called


def flatten_arguments(function: ir.Operation) -> int:
    """Replace arguments of which each use is the same view in one dim; return how many collapsed shapes they had."""
    arguments, collapsed = list(function.regions[0].blocks[0].arguments), 0
    for argument in arguments:
        views = whole_views(argument)
        if views is not None:
            _replace_views(views, argument)
            argument.set_type(views.kind)
            collapsed += views.collapsed
    results = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).results
    kinds = [argument.type for argument in arguments]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kinds, list(results)))
    return collapsed


def flatten_scratch(op: ir.Operation) -> int:
    """Give memory of constant size one dim if each use is the same collapsed shape; return how many there were."""
    views = whole_views(op.results[0])
    if views is None or views.collapsed < len(views.operations):
        return 0
    with ir.InsertionPoint(op), op.location:
        flat = ir.Operation.create(op.name, [views.kind], list(op.operands), attributes_of(op))
    _replace_views(views, flat.results[0])
    op.erase()
    return views.collapsed


@dataclass(frozen=True)
class WholeViews:
    """The uses of a buffer, all of which are views of one type in one dim."""

    operations: list[ir.Operation]
    kind: ir.Type
    collapsed: int
    """How many of them are collapsed shapes."""


def whole_views(buffer: ir.Value) -> WholeViews | None:
    """Return the views that all uses of a buffer are; None if there are other uses, or views of several types."""
    views = [use.owner for use in buffer.uses]
    if not views or not all(map(_is_whole, views)):
        return None
    kinds = {view.operation.results[0].type for view in views}
    if len(kinds) > 1:
        return None
    collapsed = sum(isinstance(view, memref.CollapseShapeOp) for view in views)
    return WholeViews([view.operation for view in views], kinds.pop(), collapsed)


def _replace_views(views: WholeViews, buffer: ir.Value) -> None:
    """Replace views by a buffer of their type."""
    for view in views.operations:
        view.results[0].replace_all_uses_with(buffer)
        view.erase()


def _is_whole(op: ir.OpView) -> bool:
    """Return whether an operation is a view in one dim, of constant size, from the first element on."""
    if isinstance(op, memref.CollapseShapeOp):
        return _is_contiguous(op)
    if not isinstance(op, memref.ViewOp) or len(op.operation.operands) != 2:
        return False
    shift, kind = op.operation.operands[1].owner, op.operation.results[0].type
    is_first = not isinstance(shift, ir.Block) and shift.name == "arith.constant"
    is_first = is_first and ir.IntegerAttr(shift.attributes["value"]).value == 0
    return bool(is_first and kind.has_static_shape and len(kind.shape) == 1)


def _is_contiguous(op: ir.OpView) -> bool:
    source, result = op.operation.operands[0].type, op.operation.results[0].type
    is_constant = source.has_static_shape and result.has_static_shape and len(result.shape) == 1
    return bool(
        is_constant and all(kind.affine_map == ir.AffineMap.get_identity(kind.rank) for kind in (source, result))
    )


def _flatten(op: ir.Operation) -> None:
    result = op.results[0]
    with ir.InsertionPoint(op), op.location:
        cast = memref.ReinterpretCastOp(result.type, op.operands[0], [], [], [], [0], list(result.type.shape), [1])
    result.replace_all_uses_with(cast.operation.results[0])
    op.erase()
