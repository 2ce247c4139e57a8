"""Loop nodes without a bound of their trip count that collect rows: the condition alone ends them."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import mirlo

F32 = TensorProto.FLOAT


def model_of(row: str, row_type: int, bound: bool, is_entered: bool) -> onnx.ModelProto:
    """Return a model that doubles its input until the sum is 100, and collects a value of each iteration."""
    make, info = helper.make_node, helper.make_tensor_value_info
    body = helper.make_graph(
        [
            make("Mul", ["v", "two"], ["w"]), make("ReduceSum", ["w"], ["sum"], keepdims=0),
            make("Less", ["sum", "most"], ["more"]), make("Identity", [row], ["row"]),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("was", TensorProto.BOOL, []), info("v", F32, None)],
        [info("more", TensorProto.BOOL, []), info("w", F32, None), info("row", row_type, None)],
    )  # fmt: skip
    held = {"two": np.float32(2), "most": np.float32(100), "far": np.array(2**63 - 1), "entered": np.array(is_entered)}
    graph = helper.make_graph(
        [make("Loop", ["far" if bound else "", "entered", "x"], ["last", "rows"], body=body)],
        "g",
        [info("x", F32, ["n", 2])],
        [info("last", F32, None), info("rows", row_type, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize(
    "row, row_type", [("w", F32), ("sum", F32), ("i", TensorProto.INT64), ("was", TensorProto.BOOL)]
)
def test_rows_are_collected(row: str, row_type: int, bound: bool) -> None:
    model = model_of(row, row_type, bound, True)
    f, oracle = mirlo.compile(model), onnxruntime.InferenceSession(model.SerializeToString())
    for value, n in ((1.0, 1), (0.01, 3), (1000.0, 2), (1e-6, 1)):
        x = np.full((n, 2), value, np.float32)
        for found, expected in zip(f(x), oracle.run(None, {"x": x}), strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_no_iteration_makes_no_row() -> None:
    f = mirlo.compile(model_of("w", F32, False, False))
    last, rows = f(np.ones((3, 2), np.float32))
    assert last.tolist() == [[1, 1]] * 3 and rows.shape == (0, 3, 2)
