"""ArgMax and ArgMin of NaN: its first or last position, as in ONNX's reference evaluator, NumPy and PyTorch."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import mirlo

X = np.array([
    [1, np.nan, 3, np.nan, 2], [np.nan] * 5, [np.inf, np.nan, -np.inf, np.nan, 0], [np.nan, 5, 7, 7, 1],
    [4, 4, 9, 1, np.nan], [0, 2, 1, 2, 0], [-0.0, 0.0, -0.0, 0.0, 0.0], [np.inf, -np.inf, np.inf, -np.inf, 1],
])  # fmt: skip
KINDS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)


@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("kind", KINDS)
def test_nan_is_the_extreme(operator: str, kind: int) -> None:
    """ONNX Runtime passes over NaN unless it is the first element, and has no bfloat16: it is no oracle here."""
    x = X.astype(helper.tensor_dtype_to_np_dtype(kind))
    by_numpy = getattr(np, operator.lower())
    for last in (0, 1):
        nodes = [
            helper.make_node(operator, [given], [result], axis=1, keepdims=0, select_last_index=last)
            for given, result in (("x", "of_input"), ("held", "of_constant"))
        ]
        outputs = [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in ("of_input", "of_constant")]
        held = onnx.numpy_helper.from_array(x, "held")
        given = [helper.make_tensor_value_info("x", kind, ["n", 5])]
        graph = helper.make_graph(nodes, "extremes", given, outputs, [held])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        expected = 4 - by_numpy(x[:, ::-1], 1) if last else by_numpy(x, 1)
        np.testing.assert_array_equal(expected, ReferenceEvaluator(model).run(None, {"x": x})[0])
        for result in mirlo.compile(model).run({"x": x}).values():
            np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("operator", ["argmax", "argmin"])
def test_numpy_agrees_with_pytorch(operator: str) -> None:
    """The oracle of the test above, where PyTorch is installed."""
    torch = pytest.importorskip("torch", reason="needs PyTorch: make test-doors")
    np.testing.assert_array_equal(getattr(np, operator)(X, 1), getattr(torch, operator)(torch.from_numpy(X), 1))
