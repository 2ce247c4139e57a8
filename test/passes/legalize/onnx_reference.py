"""What ONNX Runtime, or the reference evaluator of ONNX, makes of one node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper


def onnx_node(
    kind: str, inputs: Sequence[Any], attributes: dict[str, Any] | None = None, outputs: int = 1, opset: int = 17,
    by_definition: bool = False,
) -> Any:  # fmt: skip
    """Return the results of the node on these arrays (None for an input that is left out): an array, or a list of them.

    `by_definition` is for operators that the ONNX Runtime of some version of Python does not have.
    """
    names = ["" if a is None else f"x{i}" for i, a in enumerate(inputs)]
    made = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(kind, names, made, **(attributes or {}))
    given = {name: np.ascontiguousarray(a) for name, a in zip(names, inputs, strict=True) if a is not None}
    declared = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in given.items()
    ]
    graph = helper.make_graph([node], "g", declared, [onnx.ValueInfoProto(name=name) for name in made])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    if by_definition:
        from onnx.reference import ReferenceEvaluator

        found = ReferenceEvaluator(model).run(None, given)
        return found[0] if outputs == 1 else found
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results = session.run(None, given)
    return results[0] if outputs == 1 else results
