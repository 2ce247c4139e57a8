"""Small models of ONNX for tests.

nodes = [node("MatMul", "x w", "m"), node("Relu", "m", "y")]
model = make_model(nodes, {"x": (F32, [2, 3])}, ["y"], {"w": weights})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

F32, I64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
Values = Mapping[str, tuple[int, Sequence[int | str | None]]]


def make_model(
    nodes: Sequence[Any],
    inputs: Values,
    outputs: Sequence[str],
    constants: Mapping[str, Any] | None = None,
    opset: int = 18,
    functions: Sequence[Any] = (),
    output_types: Values | None = None,
) -> onnx.ModelProto:
    """Return a model of these nodes; outputs have no declared shape by default."""
    declared = output_types or {}
    graph = helper.make_graph(
        list(nodes),
        "small",
        [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()],
        [helper.make_tensor_value_info(name, *declared.get(name, (0, None))) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()],
    )
    for value in graph.output:
        if value.name not in declared:
            value.ClearField("type")
    imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid(f.domain, 1) for f in functions]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=10)


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    """Make a node from text: `node("Add", "a b", "c")`; '_' is an omitted input or output."""
    names = [["" if name == "_" else name for name in text.split()] for text in (inputs, outputs)]
    return helper.make_node(operator, *names, **attributes)
