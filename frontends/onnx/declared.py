"""Shape-determining values that are known only at run time, where the model declares the resulting shapes.

The declared shape is compiled; a check at run time ensures that the values match it before results are returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np

from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.calls import CallDpsPacked
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.tensor import Tensor, where


def declared_shape(node: Node, index: int, output: int = 0) -> tuple[int, ...] | None:
    """Return the declared shape of an output; None if the input is known, which then decides."""
    if not node.has(index) or node.value(index).known is not None or not node.type(index).is_static:
        return None
    return node.declared(output)


def declared_of_static(node: Node, index: int) -> tuple[int, ...] | None:
    """Return the declared shape of an output where the dims of the first input are numbers, too.

    A shape of dims that only a call knows cannot be compared with it; that shape is computed in the call.
    """
    return declared_shape(node, index) if node.type(0).is_static else None


def count_of(node: Node, index: int) -> int:
    """Return the number of elements of an input that is a list of integers."""
    return int(np.prod(node.type(index).static_shape))


CONTRADICTS = "which contradicts the shape that the model declares"
ADVICE = ": correct or remove that, or open the model with mirlo.InferenceSession, which goes on without"


def required(node: Node, holds: Tensor, what: str, value: Tensor, why: str = CONTRADICTS + ADVICE) -> Tensor:
    """Return the value if all elements of a bool tensor hold; otherwise the call ends with an error."""
    return required_all(node, holds, what, [value], why)[0]


def assumption(node: Node, what: str, why: str) -> str:
    """Return the text of the error if an assumption of compile time does not hold."""
    return f"node '{node.outputs[0]}' ({node.operator}): {what}, {why}"


def required_all(
    node: Node, holds: Tensor, what: str, values: Iterable[Tensor], why: str = CONTRADICTS + ADVICE
) -> list[Tensor]:
    """Return the values if all elements of a bool tensor hold, as `required`."""
    text = assumption(node, what, why)
    node.builder.observer.assumed(node.outputs, text)
    message = node.constant(np.frombuffer(text.encode(), np.uint8))
    checked = node.emit(CallDpsPacked, [holds, message], result_types=[holds.type], function="mirlo.require")
    flag = checked.all() if checked.type.rank else checked
    return [where(flag, value, node.constant(0, value.type)) for value in values]


def equals(node: Node, index: int, wanted: Sequence[float] | float) -> Tensor:
    """Return whether the elements of an input equal these numbers."""
    tensor_type = node.type(index)
    if tensor_type.elements != np.size(wanted):
        text = f"must have the {np.size(wanted)} numbers that the declared shape takes, got {tensor_type}"
        raise NodeError(f"input {node.input_name(index)} {text}")
    return node[index].equals(node.constant(np.reshape(wanted, tensor_type.static_shape), tensor_type))


def axes_set(node: Node, index: int, rank: int) -> Tensor:
    """Return the axes that an input lists as a bit set."""
    column = node[index].reshape((count_of(node, index), 1))
    kind = node.type(index)
    from_start, from_end = (column.equals(node.constant(np.arange(rank)[None] - offset, kind)) for offset in (0, rank))
    result = (from_start | from_end).cast("i64")
    return (result * node.constant(1 << np.arange(rank), "i64")).sum()


def candidate_axes(x: TensorType, count: int, shape: Sequence[int], keepdims: bool) -> list[tuple[int, ...]]:
    """Return the axis sets of this size whose removal, or reduction to 1, leaves this shape."""
    result = []
    for axes in combinations(range(x.rank), count):
        dims = [1 if i in axes else dim for i, dim in enumerate(x.shape) if keepdims or i not in axes]
        if tuple(dims) == tuple(shape):
            result.append(axes)
    return result


def is_candidate(node: Node, axes_bits: Tensor, candidates: Sequence[tuple[int, ...]]) -> Tensor:
    """Return whether an axis set is one of the candidates."""
    numbers = node.constant(np.array([axes_as_bits(axes) for axes in candidates]), "i64")
    return axes_bits.equals(numbers).any()


def axes_as_bits(axes: Sequence[int]) -> int:
    return sum(1 << axis for axis in axes)


def by_axis(node: Node, values: Tensor, axes: Tensor, rank: int) -> Tensor:
    """Return a number per axis: `values` for the axes that `axes` lists, which may be negative; 0 for others."""
    (count,) = values.type.shape
    column = axes.reshape((count, 1))
    positions = node.constant(np.arange(rank)[None], "i64")
    negative = positions - rank
    here = column.equals(positions) | column.equals(negative)
    spread = where(here, values.reshape((count, 1)), 0)
    return spread.sum(0)
