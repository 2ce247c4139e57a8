"""ONNX's own opinion of a node, consulted when a converter fails on an invalid one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mirlo.frontends.onnx.dtypes import onnx_code
from mirlo.frontends.onnx.graph import ModelDef, NodeDef, ValueDef
from mirlo.frontends.onnx.reading import read_values
from mirlo.frontends.onnx.values import AnyValue
from mirlo.frontends.onnx.writing import model_message, node_message
from mirlo.frontends.tensor import Tensor

MAX_SHAPE_ELEMENTS = 1024
"""Larger constants do not determine shapes."""
_PREFIX = re.compile(r"^.*\[(?:ShapeInference|TypeInference)Error\] ?", re.DOTALL)


def inference_error(node: NodeDef, version: int, inputs: Sequence[AnyValue | None]) -> str | None:
    """Return why ONNX's shape inference refuses the node for these inputs; None if it does not."""
    import onnx
    from onnx import helper, numpy_helper

    if node.graphs:  # they may capture values of the enclosing graphs
        return None
    given: dict[str, onnx.ValueInfoProto] = {}
    constants: list[onnx.TensorProto] = []
    for name, value in zip(node.inputs, inputs, strict=True):
        if value is None or name in given:
            continue
        if not isinstance(value, Tensor):
            return None
        dims = [dim if isinstance(dim, int) else None for dim in value.type.shape]
        given[name] = helper.make_tensor_value_info(name, onnx_code(value.type.dtype), dims)
        if value.known is not None and value.array is not None and value.known.size <= MAX_SHAPE_ELEMENTS:
            constants.append(numpy_helper.from_array(value.known, name))
    shown = [helper.make_empty_tensor_value_info(name) for name in node.outputs if name]
    graph = helper.make_graph([node_message(node)], "node", list(given.values()), shown, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, version)])
    try:
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        return _PREFIX.sub("", str(error)).strip().rstrip(".") or "it is not valid"
    except Exception:  # inference is unavailable
        return None
    return None


def inferred_values(model: ModelDef) -> tuple[ValueDef, ...]:
    """Return the values and outputs of a model with the types that it declares or ONNX's shape inference finds."""
    import onnx

    graph = model.graph
    try:
        inferred = onnx.shape_inference.infer_shapes(model_message(model)).graph
    except Exception:  # its problems are reported elsewhere
        return (*graph.values, *graph.outputs)
    return read_values([*inferred.value_info, *inferred.output])
