"""Random numbers of ONNX: their distributions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import mirlo


@pytest.mark.parametrize("dtype", [None, TensorProto.INT64, TensorProto.BOOL])
def test_bernoulli_draws_ones_with_the_probability(dtype: int | None) -> None:
    words = {} if dtype is None else {"dtype": dtype}
    of = dtype or TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Bernoulli", ["p"], ["y"], seed=3.0, **words)], "draws",
        [helper.make_tensor_value_info("p", TensorProto.FLOAT, [3, 4000])],
        [helper.make_tensor_value_info("y", of, [3, 4000])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    chances = np.repeat(np.float32([[0.0], [0.9], [1.0]]), 4000, 1)
    found = mirlo.compile(model, cache=False)(chances)
    assert found.dtype == onnx.helper.tensor_dtype_to_np_dtype(of)
    np.testing.assert_allclose(found.mean(1), [0, 0.9, 1], atol=0.02)
