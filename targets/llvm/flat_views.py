"""Views of whole buffers in one dim, which schedules read and write, as casts that are lowered by themselves.

Upstream lowers `memref.collapse_shape` in a pass that looks for a dozen patterns at each operation of a module.
"""

from __future__ import annotations

from mirlo.dialects.bindings import ir, memref

_EXPANDED = ("memref.subview", "memref.expand_shape", "memref.collapse_shape", "memref.extract_")
"""The beginnings of the names of the operations that `expand-strided-metadata` lowers."""


def flatten_views(module: ir.Module, text: str) -> bool:
    """Replace views of contiguous buffers of constant size in one dim; return whether other views are left.

    `text` is that of the module. Views in loops are left.
    """
    left = sum(map(text.count, _EXPANDED))
    if not left:
        return False
    for function in module.body.operations:
        for region in function.operation.regions:
            for block in region.blocks:
                for op in list(block.operations):
                    if isinstance(op, memref.CollapseShapeOp) and _is_contiguous(op):
                        _flatten(op.operation)
                        left -= 1
    return left > 0


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
