"""Pools with windows larger than a padded dim: what ONNX Runtime computes for them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import mirlo
from mirlo.frontends.onnx.errors import OnnxImportError

CASES = list(
    itertools.product(
        [(1, 2), (1, 1, 1, 1), (1, 3, 1, 5)],
        [2, 3],
        [1, 2, 3],
        [{}, {"ceil_mode": 1}, {"auto_pad": "SAME_UPPER"}, {"pads": 1}, {"dilations": 2}],
    )
)


def model_of(operator: str, shape: tuple[int, ...], outputs: int = 1, **attributes: Any) -> onnx.ModelProto:
    names = ["y", "at"][:outputs]
    graph = helper.make_graph(
        [helper.make_node(operator, ["x"], names, name="pool", **attributes)],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info(name) for name in names],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def oracle(model: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray] | None:
    """Return what ONNX Runtime computes; None where it refuses."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})  # type: ignore[no-any-return]
    except Exception:
        return None


@pytest.mark.sample(8)
@pytest.mark.parametrize(("shape", "window", "stride", "more"), CASES)
@pytest.mark.parametrize(("operator", "outputs"), [("MaxPool", 1), ("MaxPool", 2), ("AveragePool", 1), ("LpPool", 1)])
def test_windows_that_do_not_fit(
    operator: str, outputs: int, shape: tuple[int, ...], window: int, stride: int, more: dict[str, Any]
) -> None:
    shape = (1, *shape) if len(shape) == 2 else shape
    rank = len(shape) - 2
    lists = {"pads": 2 * rank, "dilations": rank}
    attributes = {name: [value] * lists[name] if name in lists else value for name, value in more.items()}
    if operator == "AveragePool":
        attributes["count_include_pad"] = 1
    model = model_of(operator, shape, outputs, kernel_shape=[window] * rank, strides=[stride] * rank, **attributes)
    x = np.random.default_rng(window).standard_normal(shape).astype(np.float32)
    expected = oracle(model, x)
    if expected is None:
        with pytest.raises(OnnxImportError, match="does not fit|smaller than the window"):
            mirlo.compile(model)
        return
    computed = mirlo.compile(model).run({"x": x})
    for name, value in zip(["y", "at"], expected, strict=False):
        assert computed[name].shape == value.shape
        np.testing.assert_allclose(computed[name], value, rtol=1e-6)
