"""The work of an operator: arithmetic operations and bytes, from its types and what its class declares."""

from __future__ import annotations

import math

from mirlo.dialects.core.op import DialectOp
from mirlo.passes.byoc.graph import BlockNode


def flops_of(node: BlockNode) -> int | None:
    """Return the operation count of a node, a multiply-add counted as two; None for dynamic dims."""
    kinds = [value.type for value in (*node.operands, *node.results)]
    if not node.results or any(kind is None or not kind.is_static for kind in kinds):
        return None
    view, count = node.op.opview, len(node.operands)
    if not isinstance(view, DialectOp):
        return sum(math.prod(kind.static_shape) for kind in kinds[count:] if kind is not None)
    tensor_types = [kind for kind in kinds if kind is not None]
    return view.flops(tensor_types[:count], tensor_types[count:], **view.attribute_values())


def bytes_of(node: BlockNode) -> int | None:
    """Return the bytes that a node reads and writes."""
    kinds = [value.type for value in (*dict.fromkeys(node.operands), *node.results)]
    if any(kind is None or not kind.is_static for kind in kinds):
        return None
    return sum(kind.bytes for kind in kinds if kind is not None)


def total(numbers: list[int | None]) -> int | None:
    """Return the sum, or None if a term is unknown."""
    return None if any(number is None for number in numbers) else sum(n for n in numbers if n is not None)
