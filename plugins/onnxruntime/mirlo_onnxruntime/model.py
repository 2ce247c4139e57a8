"""A region as an ONNX model. Large constants are declared as external data and supplied at load time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirlo.extend.codegen import Decline, ExternalFunction, ExternalNode, ExternalValue
from mirlo.extend.codegen import dims as D
from mirlo.extend.runtime import MirloError
from mirlo_onnxruntime.dtypes import CODES, code_of
from mirlo_onnxruntime.export import load_exporters
from mirlo_onnxruntime.export.graph import INLINE_BYTES, IR_VERSION, OPSET, ExportGraph

if TYPE_CHECKING:
    import onnx

OUTSIDE = "outside"
"""The file name given to constants that are supplied at load time."""


class OnnxExportError(MirloError, ValueError):
    """A region cannot be expressed in ONNX."""


@dataclass(frozen=True)
class OnnxRegion:
    """A model and the constants of its external initializers."""

    model: onnx.ModelProto
    weights: dict[str, str]
    """The constant of each external initializer, by initializer name."""


def region_model(function: ExternalFunction) -> OnnxRegion:
    """Export a region to an ONNX model."""
    graph = ExportGraph()
    weights = {}
    for value in function.constants:
        array = value.array
        assert array is not None and value.constant is not None
        if array.nbytes > INLINE_BYTES:
            weights[value.name] = value.constant
        graph.initializers[value.name] = _initializer(value, array)
    for node in function.nodes:
        outputs = export_node(graph, node)
        if isinstance(outputs, Decline):
            raise OnnxExportError(f"region '{function.name}': {node}: {outputs}")
    return OnnxRegion(
        _model(graph, function.name, function.inputs, function.outputs, _output_names(graph, function)), weights
    )


def _output_names(graph: ExportGraph, function: ExternalFunction) -> list[str]:
    """Return output names: those of the values, new ones for inputs, constants and values returned twice."""
    from onnx import helper

    names: list[str] = []
    for value in function.outputs:
        name = value.name
        if value.producer is None or name in names:
            name = graph.fresh("out")
            graph.nodes.append(helper.make_node("Identity", [value.name], [name]))
        names.append(name)
    return names


def node_model(node: ExternalNode) -> onnx.ModelProto | Decline:
    """Return a model of one operator on inputs of its types, or a decline."""
    graph = ExportGraph()
    result = export_node(graph, node)
    if isinstance(result, Decline):
        return result
    inputs = list(dict.fromkeys(node.inputs))
    return _model(graph, "one", inputs, node.outputs, [value.name for value in node.outputs])


def export_node(graph: ExportGraph, node: ExternalNode) -> Decline | None:
    """Add an operator to a graph, with its results under their names in the view, or decline."""
    exporter = load_exporters().get(node.op)
    if exporter is None:
        return Decline(f"nothing exports {node.op}")
    for value in (*node.inputs, *node.outputs):
        if value.type.dtype.name not in CODES:
            return Decline("ONNX Runtime exchanges no such element type with numpy", {"dtype": value.type.dtype.name})
    before, names = len(graph.nodes), exporter(graph, node)
    if isinstance(names, Decline):
        return names
    if node.name and len(graph.nodes) == before + 1:
        graph.nodes[before].name = f"{node.name}%{before}"
    result_names = dict(zip(names, (value.name for value in node.outputs), strict=True))
    for added in graph.nodes[before:]:
        added.input[:] = [result_names.get(name, name) for name in added.input]
        added.output[:] = [result_names.get(name, name) for name in added.output]
    return None


def _initializer(value: ExternalValue, array: np.ndarray) -> onnx.TensorProto:
    import onnx
    from onnx import numpy_helper

    if array.nbytes <= INLINE_BYTES:
        return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), value.name)
    tensor = onnx.TensorProto(name=value.name, dims=array.shape, data_type=code_of(value.type.dtype))
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=OUTSIDE)
    return tensor


def _model(
    graph: ExportGraph,
    name: str,
    inputs: Sequence[ExternalValue],
    outputs: Sequence[ExternalValue],
    output_names: Sequence[str],
) -> onnx.ModelProto:
    from onnx import helper

    taken = [_declared(value, value.name) for value in inputs]
    declared_outputs = [_declared(value, output) for value, output in zip(outputs, output_names, strict=True)]
    proto = helper.make_graph(graph.nodes, name, taken, declared_outputs, list(graph.initializers.values()))
    imports = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(*item) for item in graph.domains.items())]
    return helper.make_model(proto, opset_imports=imports, ir_version=IR_VERSION, producer_name="mirlo")


def _declared(value: ExternalValue, name: str) -> onnx.ValueInfoProto:
    from onnx import helper

    dims = [dim if isinstance(dim, int) else None if dim is D.UNKNOWN else str(dim) for dim in value.type.shape]
    return helper.make_tensor_value_info(name, code_of(value.type.dtype), dims)
