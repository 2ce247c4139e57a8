"""ONNX's own opinion of a node, consulted when a converter fails on an invalid one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.frontends.onnx.dtypes import onnx_code
from mirlo.frontends.onnx.values import AnyValue, TensorValue

if TYPE_CHECKING:
    import onnx

MAX_SHAPE_ELEMENTS = 1024
"""Larger constants do not determine shapes."""
_PREFIX = re.compile(r"^.*\[(?:ShapeInference|TypeInference)Error\] ?", re.DOTALL)
_GRAPHS = (5, 10)
"""Attribute types that hold graphs, which may capture values of the enclosing graphs."""


def inference_error(node: onnx.NodeProto, version: int, inputs: Sequence[AnyValue | None]) -> str | None:
    """Return why ONNX's shape inference refuses the node for these inputs; None if it does not."""
    import onnx
    from onnx import helper, numpy_helper

    if any(attribute.type in _GRAPHS for attribute in node.attribute):
        return None
    given: dict[str, onnx.ValueInfoProto] = {}
    constants: list[onnx.TensorProto] = []
    for name, value in zip(node.input, inputs, strict=True):
        if value is None or name in given:
            continue
        if not isinstance(value, TensorValue):
            return None
        dims = [dim if isinstance(dim, int) else None for dim in value.type.shape]
        given[name] = helper.make_tensor_value_info(name, onnx_code(value.type.dtype), dims)
        if value.known is not None and value.is_constant and value.known.size <= MAX_SHAPE_ELEMENTS:
            constants.append(numpy_helper.from_array(value.known, name))
    shown = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([node], "node", list(given.values()), shown, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, version)])
    try:
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        return _PREFIX.sub("", str(error)).strip().rstrip(".") or "it is not valid"
    except Exception:  # inference is unavailable
        return None
    return None
