"""Cases that the standard leaves open, as docs/onnx.md says that Mirlo decides them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import mirlo

F32 = TensorProto.FLOAT


def compiled(node: Any, shape: list[int | str], constants: dict[str, np.ndarray] | None = None) -> Any:
    inputs = [helper.make_tensor_value_info("x", F32, shape)]
    outputs = [helper.make_tensor_value_info("y", F32, None)]
    made = [helper.make_tensor(name, F32, array.shape, array.ravel()) for name, array in (constants or {}).items()]
    graph = helper.make_graph([node], "g", inputs, outputs, made)
    return mirlo.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))


@pytest.mark.sample(2)
@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize(("kernel", "stride"), [(2, 1), (3, 2), (5, 1)])
@pytest.mark.parametrize("channels", [1, 3, 32])
def test_a_window_with_nan_has_the_maximum_nan(channels: int, kernel: int, stride: int, is_dynamic: bool) -> None:
    rng = np.random.default_rng(channels * 10 + kernel)
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[kernel] * 2, strides=[stride] * 2)
    x = rng.standard_normal((2, channels, 13, 19)).astype(np.float32)
    x[rng.random(x.shape) < 0.05] = np.nan
    x[rng.random(x.shape) < 0.05] = np.inf
    x[rng.random(x.shape) < 0.05] = -np.inf
    windows = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]
    run = compiled(node, ["n", channels, "h", "w"] if is_dynamic else list(x.shape))
    np.testing.assert_array_equal(run(x), windows.max((-2, -1)))


@pytest.mark.parametrize("size", [4, 100])
def test_powers_by_a_constant_half_are_square_roots(size: int) -> None:
    x = np.resize(np.float32([-np.inf, -0.0, 0.0, np.inf, 4, -4, np.nan]), size)
    found = compiled(helper.make_node("Pow", ["x", "half"], ["y"]), [size], {"half": np.float32(0.5)})(x)
    with np.errstate(invalid="ignore"):
        expected = np.sqrt(x)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found[x == 0]), np.signbit(x[x == 0]))


def test_powers_by_a_tensor_of_exponents_follow_c() -> None:
    x = np.float32([-np.inf, -0.0, 0.0, np.inf, 4, -4, np.nan])
    node = helper.make_node("Pow", ["x", "half"], ["y"])
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(name, F32, ["n"]) for name in ("x", "half")],
        [helper.make_tensor_value_info("y", F32, ["n"])],
    )  # fmt: skip
    run = mirlo.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    np.testing.assert_array_equal(
        run(x, np.full(7, 0.5, np.float32)), np.float32([np.inf, 0, 0, np.inf, 2, *[np.nan] * 2])
    )
