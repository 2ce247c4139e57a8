"""AffineGrid of dynamic sizes: one compilation, against the reference."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import mirlo


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("count", [2, 3])
def test_grid(count: int, corners: int) -> None:
    theta = np.random.default_rng(0).random((2, count, count + 1), np.float32)
    node = helper.make_node("AffineGrid", ["theta", "size"], ["grid"], align_corners=corners)
    given = [
        helper.make_tensor_value_info("theta", TensorProto.FLOAT, theta.shape),
        helper.make_tensor_value_info("size", TensorProto.INT64, [count + 2]),
    ]
    graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("grid", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    f, reference = mirlo.compile(model), ReferenceEvaluator(model)
    for spatial in ((4, 5, 6), (3, 2, 7)):
        size = np.array([2, 3, *spatial[:count]])
        expected = reference.run(None, {"theta": theta, "size": size})[0]
        np.testing.assert_allclose(f(theta, size), expected, rtol=1e-5, atol=1e-6)
