"""Rows of tables that are computed from constants: against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import mirlo

ROWS, COLUMNS = 9000, 64


@pytest.mark.parametrize("scale_axis", [None, 0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_of_quantized_tables(axis: int, scale_axis: int | None) -> None:
    """Scales of the whole, of rows or of columns; rows or columns are read, by indices that may count from the end."""
    rng = np.random.default_rng(0)
    shape = (ROWS, COLUMNS) if axis == 0 else (COLUMNS, ROWS)
    arrays = {
        "codes": rng.integers(-128, 128, shape, dtype=np.int8),
        "scale": np.asarray(rng.random(shape[scale_axis] if scale_axis is not None else (), dtype=np.float32)),
        "zero": np.asarray(rng.integers(-3, 4, () if scale_axis is None else shape[scale_axis], dtype=np.int8)),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["codes", "scale", "zero"], ["table"], axis=scale_axis or 0),
        helper.make_node("Gather", ["table", "at"], ["y"], axis=axis),
    ]
    at = helper.make_tensor_value_info("at", TensorProto.INT64, [2, 5])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    held = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "tables", [at], [y], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    compiled = mirlo.compile(model, cache=False)
    indices = rng.integers(-ROWS, ROWS, (2, 5))
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"at": indices})[0]
    np.testing.assert_allclose(compiled(indices), expected, rtol=1e-6)
    if axis != scale_axis:
        assert sum(kernel.flops for kernel in compiled.artifact.kernels) < ROWS * COLUMNS


@pytest.mark.parametrize("scaled", ["rows", "columns", "all"])
def test_rows_of_codes_times_scales(scaled: str) -> None:
    rng = np.random.default_rng(1)
    scale = rng.random({"rows": (ROWS, 1), "columns": (COLUMNS,), "all": (1,)}[scaled], dtype=np.float32)
    codes = rng.integers(-128, 128, (ROWS, COLUMNS), dtype=np.int8)
    nodes = [
        helper.make_node("Cast", ["codes"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["numbers", "scale"], ["table"]),
        helper.make_node("Gather", ["table", "at"], ["y"]),
    ]
    at = helper.make_tensor_value_info("at", TensorProto.INT64, ["batch", "length"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    held = [numpy_helper.from_array(codes, "codes"), numpy_helper.from_array(scale, "scale")]
    graph = helper.make_graph(nodes, "tables", [at], [y], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    compiled = mirlo.compile(model, cache=False)
    for shape in ((1, 1), (3, 4)):
        indices = rng.integers(-ROWS, ROWS, shape)
        expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"at": indices})[0]
        np.testing.assert_allclose(compiled(indices), expected, rtol=1e-6)
