"""Files that ONNX Runtime saves at its highest optimization level: tensors and kernels in blocks of channels."""

from __future__ import annotations

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


def test_blocks_of_another_machine() -> None:
    node = make("Conv", ["x", "w"], ["y"], domain=DOMAIN)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(kernel(20, 3, 3, 3), "w")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    with pytest.raises(OnnxImportError, match=r"input 'W' is a kernel \[20, 3, 3, 3\], .* blocks of (8|16) channels"):
        mirlo.compile(model)
