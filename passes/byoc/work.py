"""The work of an operator: arithmetic operations and bytes, from its types and attributes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.types import TensorType
from mirlo.passes.byoc.graph import BlockNode

VIEWS = frozenset(
    f"relax.{name}"
    for name in ("reshape", "permute", "expand", "expand_dims", "squeeze", "tile", "reverse", "depth_to_space", "pad",
                 "space_to_depth", "shape_of", "strided_slice", "concat", "stack", "split", "gather", "gather_elements",
                 "gather_nd", "one_hot", "full", "arange", "eye", "tri", "cast", "bitcast")
)  # fmt: skip
"""Operators that move data and compute nothing."""
PER_ELEMENT = {
    "softmax": 5, "log_softmax": 5, "layer_norm": 8, "rms_norm": 5, "batch_norm": 4, "instance_norm": 8,
    "group_norm": 8, "lrn": 10, "lp_normalize": 4, "gelu": 8, "silu": 4, "sigmoid": 4, "tanh": 4, "mish": 8,
}  # fmt: skip
"""Operations per result element, where it is not one."""


def flops_of(node: BlockNode) -> int | None:
    """Return the operation count of a node, a multiply-add counted as two; None for dynamic dims."""
    kinds = [value.type for value in (*node.operands, *node.results)]
    if not node.results or any(kind is None or not kind.is_static for kind in kinds):
        return None
    short = node.name.partition(".")[2]
    if node.name in VIEWS:
        return 0
    operands = [kind for kind in kinds[: len(node.operands)] if kind is not None]
    elements = sum(math.prod(value.type.static_shape) for value in node.results if value.type is not None)
    if short in _COUNTED:
        return _COUNTED[short](node.op.opview, operands, elements)
    if short.startswith(("reduce_", "arg", "cum")):
        return math.prod(operands[0].static_shape)
    return elements * PER_ELEMENT.get(short, 1)


def bytes_of(node: BlockNode) -> int | None:
    """Return the bytes that a node reads and writes."""
    kinds = [value.type for value in (*dict.fromkeys(node.operands), *node.results)]
    if any(kind is None or not kind.is_static for kind in kinds):
        return None
    return sum(kind.bytes for kind in kinds if kind is not None)


def total(numbers: list[int | None]) -> int | None:
    """Return the sum, or None if a term is unknown."""
    return None if any(number is None for number in numbers) else sum(n for n in numbers if n is not None)


def _conv(op: ir.OpView, operands: list[TensorType], elements: int) -> int:
    weight = operands[1].static_shape
    out_axis = -1 if op.kernel_layout == "*IO" else 0
    return 2 * elements * math.prod(weight) // max(1, weight[out_axis]) + (elements if len(operands) > 2 else 0)


def _conv_transpose(op: Any, operands: list[TensorType], elements: int) -> int:
    data, weight = operands[0].static_shape, operands[1].static_shape
    return 2 * math.prod(data) * math.prod(weight[1:])


def _matmul(op: Any, operands: list[TensorType], elements: int) -> int:
    left = operands[0].static_shape
    return 2 * elements * (left[-2] if op.transpose_lhs else left[-1])


def _attention(op: Any, operands: list[TensorType], elements: int) -> int:
    batch, heads, length, size = operands[0].static_shape
    keys, values = operands[1].static_shape[2], operands[2].static_shape[3]
    return batch * heads * length * keys * (2 * size + 2 * values + 5)


def _pool(op: ir.OpView, operands: list[TensorType], elements: int) -> int:
    return elements * math.prod(op.kernel)


def _einsum(op: Any, operands: list[TensorType], elements: int) -> int:
    inputs = op.equation.replace(" ", "").partition("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, kind in zip(inputs, operands, strict=True):
        if "." in term:
            return 2 * elements
        sizes.update(zip(term, kind.static_shape, strict=True))
    return len(operands) * math.prod(sizes.values())


_COUNTED: dict[str, Callable[[Any, list[TensorType], int], int]] = {
    "conv": _conv, "conv_transpose": _conv_transpose, "matmul": _matmul, "attention": _attention, "einsum": _einsum,
    "max_pool": _pool, "avg_pool": _pool, "lp_pool": _pool,
}  # fmt: skip
