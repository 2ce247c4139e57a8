"""Data-moving operators on string tensors: compiled code moves indices of the strings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import prod

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.node_traits import NodeTrait
from mirlo.frontends.onnx.objects import call_host
from mirlo.frontends.onnx.values import AnyValue, TensorValue, constant
from mirlo.runtime.kinds import STRING, Kind
from mirlo.runtime.names import terminal

Convert = Callable[[list["AnyValue | None"]], Sequence["AnyValue | None"]]


def moved(node: Node, traits: Collection[NodeTrait], convert: Convert) -> list[AnyValue | None]:
    """Return the outputs of a node that moves or measures strings; `convert` makes those of the node on indices."""
    inputs, ssa = node.inputs, node.builder.any_ssa
    reduction = node.attr.str("reduction", "none")
    if reduction != "none":
        raise NodeError(f"attribute 'reduction' must be 'none' for strings, got '{terminal(reduction)}'")
    texts = [value for value in inputs if value is not None and value.kind.name == STRING]
    indices = iter(_string_indices(texts, ssa))
    results = convert([next(indices) if value in texts else value for value in inputs])
    if NodeTrait.MEASURES in traits:
        return list(results)
    pool = call_host("mirlo.string.pool", list(map(ssa, texts)), [Kind(STRING)])[0]
    return [None if value is None else _select_strings(ssa(pool), value, ssa) for value in results]


def _string_indices(texts: Sequence[AnyValue], ssa: Callable[[AnyValue], ir.Value]) -> Sequence[AnyValue]:
    """Return indices for the strings of some tensors, in the order of the pool."""
    shapes = [value.kind.shape for value in texts]
    if all(shape is not None and all(isinstance(dim, int) for dim in shape) for shape in shapes):
        indices, start = [], 0
        for shape in shapes:
            count = prod(int(dim) for dim in shape or ())
            indices.append(constant("", np.arange(start, start + count).reshape(shape or ())))
            start += count
        return indices
    if any(shape is None for shape in shapes):
        raise NodeError("the rank of a tensor of strings must be known, but it depends on data")
    return call_host("mirlo.string.places", list(map(ssa, texts)), [Kind("i64", shape) for shape in shapes])


def _select_strings(pool: ir.Value, places: AnyValue, ssa: Callable[[AnyValue], ir.Value]) -> AnyValue:
    assert isinstance(places, TensorValue)
    return call_host("mirlo.string.take", [pool, ssa(places)], [Kind(STRING, places.kind.shape)])[0]
