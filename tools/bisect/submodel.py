"""Submodels: a range of a model's nodes as a separate model, with arrays as its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirlo.frontends.onnx.graph import read_names
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
    """Indices of its nodes in the whole model."""


def cut(model: onnx.ModelProto, nodes: Sequence[int], outputs: Sequence[str], values: Values) -> Submodel:
    """Return the submodel of these nodes; what they read from others becomes an input of its value's shape."""
    import onnx
    from onnx import helper

    graph = model.graph
    chosen = [graph.node[index] for index in nodes]
    made = {name for node in chosen for name in node.output if name}
    needed = list(dict.fromkeys(name for node in chosen for name in read_names(node) if name not in made))
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    given = [name for name in needed if name not in initializers]
    inputs = [helper.make_value_info(name, type_of(values[name])) for name in given]
    kept = [initializers[name] for name in needed if name in initializers]
    shown = [onnx.ValueInfoProto(name=name) for name in outputs]
    part = onnx.ModelProto()
    part.CopyFrom(_shell(model))
    part.graph.CopyFrom(helper.make_graph(chosen, graph.name or "part", inputs, shown, kept))
    for info in part.graph.output:
        info.type.CopyFrom(type_of(values[info.name]))
    return Submodel(part, {name: values[name] for name in given}, tuple(outputs), tuple(nodes))


def _shell(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model without its graph: versions and functions."""
    import onnx

    shell = onnx.ModelProto()
    shell.ir_version = model.ir_version
    shell.producer_name = model.producer_name
    shell.opset_import.extend(model.opset_import)
    shell.functions.extend(model.functions)
    return shell


def type_of(value: ModelValue) -> onnx.TypeProto:
    """Return the ONNX type of an array, or of a sequence of them."""
    from onnx import helper

    if isinstance(value, (list, tuple)):
        element = type_of(value[0]) if value else helper.make_tensor_type_proto(1, None)
        return helper.make_sequence_type_proto(element)
    array = np.asarray(value)
    code = 8 if array.dtype.kind in "OSU" else helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_type_proto(code, array.shape)


def ancestors(model: onnx.ModelProto, index: int) -> list[int]:
    """Return a node and its transitive producers, in graph order."""
    producer = {name: at for at, node in enumerate(model.graph.node) for name in node.output if name}
    found: set[int] = set()
    stack = [index]
    while stack:
        current = stack.pop()
        if current in found:
            continue
        found.add(current)
        stack += [producer[name] for name in read_names(model.graph.node[current]) if name in producer]
    return sorted(found)


def live_after(model: onnx.ModelProto, last: int) -> list[str]:
    """Return the values that nodes up to `last` compute and that later ones, or the model's outputs, read."""
    made = [name for node in model.graph.node[: last + 1] for name in node.output if name]
    later = {name for node in model.graph.node[last + 1 :] for name in read_names(node)}
    later.update(value.name for value in model.graph.output)
    return [name for name in made if name in later]


def in_order(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with its nodes in topological order, without those that no output needs."""
    import onnx

    from mirlo.frontends.onnx.graph import steps

    graph = model.graph
    own = _names(graph.input) | _names(graph.initializer)
    order = steps(graph.node, own, (), [value.name for value in graph.output], graph.name or "the model")
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.node[:]
    for step in order:
        node = made.graph.node.add()
        node.CopyFrom(step.proto)
        node.name = step.name
    return made


def _names(values: Iterable[onnx.ValueInfoProto | onnx.TensorProto]) -> set[str]:
    return {value.name for value in values}
