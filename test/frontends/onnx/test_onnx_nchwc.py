"""Files that ONNX Runtime saves at its highest optimization level: tensors and kernels in blocks of channels."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.frontends.onnx import OnnxImportError

DOMAIN = "com.microsoft.nchwc"
make = helper.make_node
SAME = {"pads": [1, 1, 1, 1]}
RNG = np.random.default_rng(0)


def kernel(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) * 0.2).astype(np.float32)


MODELS: dict[str, tuple[list[onnx.NodeProto], dict[str, np.ndarray]]] = {
    "sums and activations": (
        [
            make("Conv", ["x", "w1", "b1"], ["a"], strides=[2, 2], **SAME), make("Relu", ["a"], ["r"]),
            make("Conv", ["r", "w2"], ["s"]), make("Sigmoid", ["s"], ["t"]), make("Conv", ["t", "w3"], ["u"], **SAME),
            make("Add", ["u", "r"], ["v"]), make("Relu", ["v"], ["q"]), make("GlobalAveragePool", ["q"], ["out"]),
        ],
        {"w1": kernel(24, 3, 3, 3), "b1": kernel(24), "w2": kernel(40, 24, 1, 1), "w3": kernel(24, 40, 3, 3)},
    ),
    "depthwise": (
        [
            make("Conv", ["x", "w1"], ["a"], **SAME), make("Clip", ["a", "zero", "six"], ["r"]),
            make("Conv", ["r", "w2", "b2"], ["s"], group=32, strides=[2, 2], **SAME), make("Tanh", ["s"], ["t"]),
            make("Conv", ["t", "w3"], ["out"]),
        ],
        {"w1": kernel(32, 3, 3, 3), "w2": kernel(32, 1, 3, 3), "b2": kernel(32), "w3": kernel(20, 32, 1, 1),
         "zero": np.float32(0), "six": np.float32(6)},
    ),
    "pools": (
        [
            make("Conv", ["x", "w1"], ["a"], **SAME),
            make("MaxPool", ["a"], ["m"], kernel_shape=[3, 3], strides=[2, 2], **SAME),
            make("AveragePool", ["m"], ["v"], kernel_shape=[2, 2], strides=[2, 2]),
            make("AveragePool", ["a"], ["u"], kernel_shape=[4, 4], strides=[4, 4], count_include_pad=1),
            make("Concat", ["v", "u"], ["c"], axis=1), make("Conv", ["c", "w2"], ["out"]),
        ],
        {"w1": kernel(32, 3, 3, 3), "w2": kernel(16, 64, 1, 1)},
    ),
    "upsampling": (
        [
            make("Conv", ["x", "w1"], ["a"], **SAME),
            make("Resize", ["a", "", "twice"], ["m"], nearest_mode="floor",
                 coordinate_transformation_mode="asymmetric"),
            make("Conv", ["m", "w2"], ["b"]), make("Resize", ["b", "", "twice"], ["n"], mode="linear"),
            make("Conv", ["n", "w3"], ["out"], **SAME),
        ],
        {"w1": kernel(32, 3, 3, 3), "w2": kernel(16, 32, 1, 1), "w3": kernel(8, 16, 3, 3),
         "twice": np.float32([1, 1, 2, 2])},
    ),
    "groups": (
        [
            make("Conv", ["x", "w1"], ["a"], **SAME), make("Conv", ["a", "w2"], ["b"], group=2, **SAME),
            make("LeakyRelu", ["b"], ["l"], alpha=0.2), make("Transpose", ["l"], ["out"], perm=[0, 2, 3, 1]),
        ],
        {"w1": kernel(64, 16, 3, 3), "w2": kernel(64, 32, 3, 3)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("batch", ["n", 2])
@pytest.mark.parametrize("name", MODELS)
def test_saved_models(name: str, batch: int | str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--host-cpu"):
        pytest.skip("ONNX Runtime writes the blocks of the real processor")
    nodes, held = MODELS[name]
    shape = [batch, held["w1"].shape[1], 16, 16]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, key) for key, array in held.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options: Any = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    if not any(node.domain == DOMAIN for node in onnx.load(tmp_path / "saved.onnx").graph.node):
        pytest.skip("ONNX Runtime does not use blocks on this machine")
    x = RNG.standard_normal((2, *shape[1:])).astype(np.float32)
    found = mirlo.compile(tmp_path / "saved.onnx")(x)
    np.testing.assert_allclose(found, session.run(None, {"x": x})[0], rtol=1e-3, atol=1e-4)


def in_blocks(array: np.ndarray, block: int) -> np.ndarray:
    """Return a kernel with channels that fill blocks, in the order in which ONNX Runtime stores it."""
    out, inner, height, width = array.shape
    rows = -out % block
    columns = -inner % block if inner >= block else 0
    full = np.pad(array, [(0, rows), (0, columns), (0, 0), (0, 0)])
    if inner < block:
        stored = full.reshape(-1, block, inner, height, width).transpose(0, 2, 3, 4, 1)
    else:
        stored = full.reshape(-1, block, full.shape[1] // block, block, height, width).transpose(0, 2, 4, 5, 3, 1)
    return np.ascontiguousarray(stored).reshape(full.shape)


def saved(block: int, kernels: list[np.ndarray]) -> onnx.ModelProto:
    """Return a model as ONNX Runtime saves it on a machine with blocks of a size."""
    names = ["x", *(f"t{i}" for i in range(len(kernels)))]
    nodes = [
        make("Conv", [names[i], f"w{i}"], [names[i + 1]], domain=DOMAIN, activation="Relu", **SAME)
        for i in range(len(kernels))
    ]
    nodes.append(make("ReorderOutput", [names[-1]], ["y"], domain=DOMAIN, channels=kernels[-1].shape[0]))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(in_blocks(array, block), f"w{i}") for i, array in enumerate(kernels)],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def computed(kernels: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    for array in kernels:
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]), (3, 3), (2, 3))
        x = np.maximum(np.einsum("nihwyx,oiyx->nohw", windows, array), 0)
    return x


@pytest.mark.parametrize("block", [8, 16])
@pytest.mark.parametrize("channels", [(24, 24), (32, 24), (24, 40), (40, 7), (20, 20), (16, 4)])
def test_blocks_that_the_file_shows(block: int, channels: tuple[int, int]) -> None:
    """Files of all machines are read on all machines: their channels are filled to the one size or the other."""
    kernels = [kernel(channels[0], 3, 3, 3), kernel(channels[1], -(-channels[0] // block) * block, 3, 3)]
    kernels[1][:, channels[0] :] = 0
    x = RNG.standard_normal((1, 3, 8, 8)).astype(np.float32)
    expected = computed([kernels[0], kernels[1][:, : channels[0]]], x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = mirlo.compile(saved(block, kernels))(x)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_blocks_that_the_file_does_not_show() -> None:
    kernels = [kernel(32, 3, 3, 3), kernel(16, 32, 3, 3)]
    with pytest.warns(UserWarning, match=r"blocks of 8 or 16 channels, .* ORT_ENABLE_EXTENDED"):
        mirlo.compile(saved(16, kernels))


def test_blocks_of_no_size() -> None:
    node = make("Conv", ["x", "w"], ["y"], domain=DOMAIN)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(kernel(20, 3, 3, 3), "w")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    with pytest.raises(OnnxImportError, match="fit blocks of neither 8 nor 16 channels: save the model at"):
        mirlo.compile(model)
