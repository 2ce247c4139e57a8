"""The graph that is quantized: nodes in order, with weights as arrays that may be replaced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.core.dtypes import dtype_of_numpy
from mirlo.frontends.onnx.dtypes import onnx_code
from mirlo.frontends.onnx.graph import AttributeDef, NodeDef, TensorDef, TypeDef, ValueDef, tensor_of
from mirlo.frontends.onnx.model import LoadedModel, Source, load
from mirlo.frontends.onnx.old import modernized
from mirlo.frontends.onnx.order import read_names, steps
from mirlo.frontends.onnx.writing import model_message
from mirlo.runtime.names import unused_name
from mirlo.runtime.records import dataclass
from mirlo.tools.quantize.errors import QuantizationError

if TYPE_CHECKING:
    import onnx

OPSET = 17
"""The version to which older models are brought: from 13 on DequantizeLinear has scales per channel."""
OLDEST_QDQ = 13
F32_CODE = 1
"""TensorProto.DataType: FLOAT."""
_F32 = TypeDef("tensor", F32_CODE)


@dataclass
class Network:
    """A graph whose nodes and constants may be replaced."""

    model: LoadedModel
    nodes: list[NodeDef]
    constants: dict[str, TensorDef | np.ndarray]
    names: set[str] = field(default_factory=set)
    """All names of values, so that new ones differ."""

    @classmethod
    def of(cls, source: Source) -> Network:
        """Read a model: with a recent operator set, nodes in order, constants as initializers."""
        model = load(source)
        if model.content.opsets.get("", OPSET) < OLDEST_QDQ:
            message = model_message(model.content, model.weights.array)
            model = replace(load(modernized(message, OPSET, model.name)), name=model.name)
        graph = model.content.graph
        own = {value.name for value in graph.inputs} | {tensor.name for tensor in graph.initializers}
        ordered = steps(graph.nodes, own, (), [value.name for value in graph.outputs], model.name)
        constants: dict[str, TensorDef | np.ndarray] = {tensor.name: tensor for tensor in graph.initializers}
        names = {*own, *(name for node in ordered for name in (*node.inputs, *node.outputs))}
        kept = []
        for node in ordered:
            value = _constant_of(node)
            if value is None:
                kept.append(node)
            else:
                constants[node.outputs[0]] = value
        return cls(model, kept, constants, names)

    @property
    def inputs(self) -> tuple[ValueDef, ...]:
        """Return the inputs, without those that have a constant as their default value."""
        return tuple(value for value in self.model.content.graph.inputs if value.name not in self.constants)

    @property
    def outputs(self) -> list[str]:
        return [value.name for value in self.model.content.graph.outputs]

    def array(self, name: str) -> np.ndarray:
        """Return the elements of a constant."""
        value = self.constants[name]
        return value if isinstance(value, np.ndarray) else self.model.weights.array(value)

    def weight(self, name: str) -> np.ndarray | None:
        """Return the elements of an f32 constant, which must be finite; None for other values."""
        value = self.constants.get(name)
        if value is None or (isinstance(value, TensorDef) and value.code != F32_CODE):
            return None
        array = self.array(name)
        if array.dtype != np.float32:
            return None
        if not np.isfinite(array).all():
            raise QuantizationError(
                f"{self.model.name}: tensor '{name}' has values that are not finite: no scale fits them"
            )
        return array

    def add(self, array: np.ndarray, base: str) -> str:
        """Add a constant; return its name."""
        name = self.fresh(base)
        self.constants[name] = array
        return name

    def fresh(self, base: str) -> str:
        """Return a name that no value has."""
        name = unused_name(base, self.names)
        self.names.add(name)
        return name

    def readers(self) -> Counter[str]:
        """Return how often each value is read, by nodes, their subgraphs, and as an output."""
        return Counter([*(name for node in self.nodes for name in read_names(node)), *self.outputs])

    def message(
        self, nodes: Sequence[NodeDef], outputs: Sequence[str] | None = None, inputs: Iterable[ValueDef] = ()
    ) -> onnx.ModelProto:
        """Return a model of these nodes, the network's constants and, if they are given, other outputs."""
        graph = self.model.content.graph
        declared = {value.name: value for value in graph.outputs}
        results = self.outputs if outputs is None else outputs
        read = {name for node in nodes for name in read_names(node)}.union(results)
        tensors = [_tensor(name, value) for name, value in self.constants.items() if name in read]
        changed = replace(
            graph,
            nodes=tuple(replace(node, index=i) for i, node in enumerate(nodes)),
            inputs=(*self.inputs, *inputs),
            outputs=tuple(declared.get(name) or ValueDef(name, _F32) for name in results),
            values=(),
            initializers=tuple(tensors),
        )
        return model_message(replace(self.model.content, graph=changed), self.model.weights.array)


def _tensor(name: str, value: TensorDef | np.ndarray) -> TensorDef:
    if isinstance(value, TensorDef):
        return replace(value, name=name)
    dtype = dtype_of_numpy(value.dtype)
    assert dtype is not None
    return tensor_of(value, onnx_code(dtype), name)


def _constant_of(node: NodeDef) -> TensorDef | None:
    if (node.domain, node.operator) != ("", "Constant") or len(node.outputs) != 1:
        return None
    for attribute in node.attributes:
        if attribute.name == "value" and isinstance(attribute.value, TensorDef):
            return attribute.value
    return None


def attributes_of(node: NodeDef) -> Mapping[str, object]:
    """Return the values of a node's attributes by name."""
    return {attribute.name: attribute.value for attribute in node.attributes}


def without(attributes: Sequence[AttributeDef], *names: str) -> tuple[AttributeDef, ...]:
    return tuple(attribute for attribute in attributes if attribute.name not in names)
