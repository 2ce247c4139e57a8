"""Submodels: a range of a model's nodes as a separate model, with arrays as its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from onnx import helper

from mirlo.frontends.onnx.graph import STRING_CODE, GraphDef, TypeDef, ValueDef
from mirlo.frontends.onnx.model import LoadedModel
from mirlo.frontends.onnx.order import read_names, steps
from mirlo.frontends.onnx.writing import model_message
from mirlo.runtime.records import dataclass
from mirlo.tools.bisect.compare import ModelValue

if TYPE_CHECKING:
    import onnx

Values = Mapping[str, ModelValue]


@dataclass(frozen=True)
class Submodel:
    """A model cut out of another one, and its inputs."""

    model: onnx.ModelProto
    feeds: dict[str, ModelValue]
    outputs: tuple[str, ...]
    nodes: tuple[int, ...]
    """Indices of its nodes in the whole model, without those that only widen what these read."""


def cut(model: LoadedModel, nodes: Sequence[int], outputs: Sequence[str], values: Values) -> Submodel:
    """Return the submodel of these nodes; values that they read from others become inputs of their shapes.

    Nodes that only widen what they read (`DequantizeLinear`, `Cast`), or read constants only, belong to their readers:
    low precision operators are recognized with them, so that they are in each part that reads their results.
    """
    graph = model.content.graph
    chosen = tuple(graph.nodes[index] for index in _with_widening(model, nodes, values))
    computed = {name for node in chosen for name in node.outputs if name}
    needed = list(dict.fromkeys(name for node in chosen for name in read_names(node) if name not in computed))
    initializers = {tensor.name: tensor for tensor in graph.initializers}
    inputs = [name for name in needed if name not in initializers]
    part = GraphDef(
        graph.name or "part", chosen, tuple(_value(name, values[name]) for name in inputs),
        tuple(_value(name, values[name]) for name in outputs),
        initializers=tuple(initializers[name] for name in needed if name in initializers),
    )  # fmt: skip
    message = message_of(replace(model, content=replace(model.content, graph=part)))
    return Submodel(message, {name: values[name] for name in inputs}, tuple(outputs), tuple(nodes))


def _with_widening(model: LoadedModel, nodes: Sequence[int], values: Values) -> list[int]:
    """Add the nodes before these that only widen a value of fewer bytes, or compute a constant."""
    graph = model.content.graph
    constants = {tensor.name for tensor in graph.initializers}
    producer = {name: index for index, node in enumerate(graph.nodes) for name in node.outputs if name}
    result, stack = set(nodes), list(nodes)
    while stack:
        for name in read_names(graph.nodes[stack.pop()]):
            index = producer.get(name)
            if index is None or index in result:
                continue
            read = [other for other in read_names(graph.nodes[index]) if other not in constants]
            if not read or (len(read) == 1 and _is_widened(values.get(read[0]), values.get(name))):
                result.add(index)
                stack.append(index)
    return sorted(result)


def _is_widened(value: ModelValue, result: ModelValue) -> bool:
    """Return whether a result has the elements of a value in more bytes."""
    if not isinstance(value, np.ndarray) or not isinstance(result, np.ndarray) or value.dtype.kind in "OSU":
        return False
    return value.shape == result.shape and value.dtype.itemsize < result.dtype.itemsize


def message_of(model: LoadedModel) -> onnx.ModelProto:
    """Return the message of a model with all its weights, as oracles and compilations in other processes take it."""
    return model_message(model.content, model.weights.array)


def _value(name: str, value: ModelValue) -> ValueDef:
    return ValueDef(name, type_of(value))


def type_of(value: ModelValue) -> TypeDef:
    """Return the ONNX type of an array, or of a sequence of them."""
    if isinstance(value, (list, tuple)):
        return TypeDef("sequence", element=type_of(value[0]) if value else TypeDef("tensor", 1))
    array = np.asarray(value)
    code = STRING_CODE if array.dtype.kind in "OSU" else helper.np_dtype_to_tensor_dtype(array.dtype)
    return TypeDef("tensor", code, array.shape)


def ancestors(model: LoadedModel, index: int) -> list[int]:
    """Return a node and its transitive producers, in graph order."""
    nodes = model.content.graph.nodes
    producer = {name: at for at, node in enumerate(nodes) for name in node.outputs if name}
    indices: set[int] = set()
    stack = [index]
    while stack:
        current = stack.pop()
        if current in indices:
            continue
        indices.add(current)
        stack += [producer[name] for name in read_names(nodes[current]) if name in producer]
    return sorted(indices)


def live_after(model: LoadedModel, last: int) -> list[str]:
    """Return the values that nodes up to `last` compute and that later ones, or the model's outputs, read."""
    graph = model.content.graph
    outputs = [name for node in graph.nodes[: last + 1] for name in node.outputs if name]
    later = {name for node in graph.nodes[last + 1 :] for name in read_names(node)}
    later.update(value.name for value in graph.outputs)
    return [name for name in outputs if name in later]


def in_order(model: LoadedModel) -> LoadedModel:
    """Return the model with its nodes in topological order, without those that no output needs."""
    graph = model.content.graph
    own = {value.name for value in graph.inputs} | {tensor.name for tensor in graph.initializers}
    order = steps(graph.nodes, own, (), [value.name for value in graph.outputs], graph.name or "the model")
    return replace(model, content=replace(model.content, graph=replace(graph, nodes=tuple(order))))
