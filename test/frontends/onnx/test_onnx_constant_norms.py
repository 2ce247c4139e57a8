"""Normalizations of constants, such as standardized weights, are folded before layouts of weights are chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import mirlo

RANDOM = np.random.default_rng(3)
SHAPE = (2, 6, 4, 3)


def vector(count: int = 6) -> np.ndarray:
    return RANDOM.standard_normal(count)


CASES: dict[str, tuple[list[np.ndarray], dict[str, Any]]] = {
    "BatchNormalization": ([vector(), vector(), vector(), vector() ** 2], {"epsilon": 0.1}),
    "InstanceNormalization": ([vector(), vector()], {"epsilon": 0.1}),
    "GroupNormalization": ([vector(), vector()], {"num_groups": 3}),
    "LayerNormalization": ([RANDOM.standard_normal((4, 3)), RANDOM.standard_normal((4, 3))], {"axis": 2}),
    "RMSNormalization": ([RANDOM.standard_normal(3)], {"epsilon": 0.5}),
}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("operator", CASES)
def test_normalizations_of_constants(operator: str, dtype: str) -> None:
    vectors, attributes = CASES[operator]
    arrays = [RANDOM.standard_normal(SHAPE) * 3 + 1, *vectors]
    names = [f"c{i}" for i in range(len(arrays))]
    constants = [onnx.numpy_helper.from_array(a.astype(dtype), n) for a, n in zip(arrays, names, strict=True)]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [helper.make_node(operator, names, ["n"], **attributes), helper.make_node("Mul", ["x", "n"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", kind, SHAPE)], [helper.make_tensor_value_info("y", kind, None)],
        constants,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    compiled = mirlo.compile(model, cache=False)
    x = np.ones(SHAPE, dtype)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(compiled(x), expected, rtol=1e-5 if dtype == "float32" else 4e-3, atol=2e-3)
    assert len(compiled.artifact.kernels) == 1


def test_standardized_weights_are_packed() -> None:
    """The weights of scaled standardized convolutions (NFNet) are a BatchNormalization of constants."""
    weights = RANDOM.standard_normal((1, 64, 32)).astype(np.float32)
    ones, shape = np.ones(64, np.float32), np.array([64, 32, 1, 1])
    means, variances = weights.mean((0, 2)), weights.var((0, 2))
    arrays = {"w": weights, "scale": ones, "bias": 0 * ones, "mean": means, "variance": variances, "shape": shape}
    nodes = [
        helper.make_node("BatchNormalization", ["w", "scale", "bias", "mean", "variance"], ["standard"]),
        helper.make_node("Reshape", ["standard", "shape"], ["kernel"]),
        helper.make_node("Conv", ["x", "kernel"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 32, "h", "w_"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    compiled = mirlo.compile(model, cache=False)
    x = RANDOM.standard_normal((2, 32, 5, 5)).astype(np.float32)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(compiled(x), expected, rtol=1e-4, atol=1e-4)
    (constant,) = [spec for spec in compiled.artifact.params if np.prod(spec.shape) > 64]
    assert tuple(constant.shape) != (64, 32, 1, 1), "the weights are packed in panels"
