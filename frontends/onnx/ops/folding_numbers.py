"""Folding of arithmetic on known numbers, which exporters emit on the way to shapes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from mirlo.frontends.onnx.fold import known_elements, require_few_together
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import FOLDERS, folder, meaning_of
from mirlo.frontends.sizes import Undecided


def static_elements(node: Node, index: int) -> np.ndarray:
    """Return the elements of an input, none of which is a symbolic dim."""
    array = known_elements(node, index)
    if array.dtype == object:
        raise Undecided
    return array


def _fold_elementwise(operation: Callable[..., np.ndarray], node: Node) -> np.ndarray:
    """Return what an operator computes whose result has the element type of its first input."""
    arrays = [static_elements(node, i) for i in range(len(node))]
    require_few_together(arrays)
    return np.asarray(operation(*arrays)).astype(arrays[0].dtype)


def _power(base: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    if base.dtype.kind not in "iu":
        return np.asarray(np.power(base, exponent.astype(base.dtype)))
    result = np.power(base.astype(np.float64), exponent.astype(np.float64))
    if not (np.abs(result) < 2**53).all():  # NaN as well
        raise Undecided
    return result


def _mean(*arrays: np.ndarray) -> np.ndarray:
    result: np.ndarray = sum(arrays[1:], start=arrays[0]) / np.asarray(len(arrays), arrays[0].dtype)
    return result


def _sum(*arrays: np.ndarray) -> np.ndarray:
    result: np.ndarray = sum(arrays[1:], start=arrays[0])
    return result


ELEMENTWISE = (
    "Neg", "Abs", "Not", "Floor", "Ceil", "Sqrt", "Exp", "Log", "Reciprocal", "Round", "Sign", "Xor",
)  # fmt: skip
"""Operators that are folded by what their classes mean."""
_OPERATIONS: dict[str, Callable[..., np.ndarray]] = {
    **{name: meaning_of(name) for name in ELEMENTWISE},
    "Pow": _power,
    "Sum": _sum,
    "Mean": _mean,
}
for _name, _operation in _OPERATIONS.items():
    FOLDERS.add("", _name, 1, partial(_fold_elementwise, _operation))


@folder("Clip")
def clip(node: Node) -> np.ndarray:
    result = static_elements(node, 0)
    for index, limited in ((1, np.maximum), (2, np.minimum)):
        if node.has(index):
            limit = static_elements(node, index)
            require_few_together([result, limit])
            result = limited(result, limit)
    return result


@folder("ArgMax", "ArgMin")
def arg_extreme(node: Node) -> np.ndarray:
    data, axis = static_elements(node, 0), node.attr.int("axis", 0)
    if not data.shape[axis]:
        raise Undecided
    last = node.attr.bool("select_last_index", 0)
    ordered = np.flip(data, axis) if last else data
    positions = (np.argmax if node.operator == "ArgMax" else np.argmin)(ordered, axis=axis)
    positions = np.asarray(data.shape[axis] - 1 - positions if last else positions, np.int64)
    return np.expand_dims(positions, axis) if node.attr.bool("keepdims", 1) else positions


@folder("CumSum")
def cumulative_sum(node: Node) -> np.ndarray:
    data, axis = static_elements(node, 0), int(node.scalar(1))
    if node.attr.bool("exclusive", 0) or node.attr.bool("reverse", 0):
        raise Undecided
    return np.cumsum(data, axis=axis, dtype=data.dtype)


@folder("Flatten")
def flatten(node: Node) -> np.ndarray:
    data, axis = known_elements(node, 0), node.attr.int("axis", 1)
    return data.reshape(int(np.prod(data.shape[:axis], dtype=np.int64)), -1)


def reduce_elements(node: Node, axes: list[int] | None) -> np.ndarray:
    """Return the reduction of known numbers."""
    data, keepdims = static_elements(node, 0), node.attr.bool("keepdims", 1)
    if not axes and node.attr.bool("noop_with_empty_axes", 0):
        return data
    if not data.size or data.dtype.kind == "b":
        raise Undecided
    node.attr.ignore("noop_with_empty_axes")
    result = meaning_of(node.operator)(data, axes=tuple(axes) if axes else None, keepdims=keepdims)
    # An integer mean is truncated, as by the operator.
    return np.asarray(np.trunc(result) if data.dtype.kind in "iu" else result, data.dtype)
