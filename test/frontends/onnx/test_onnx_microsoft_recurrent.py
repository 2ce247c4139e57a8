"""DynamicQuantizeLSTM of com.microsoft, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.frontends.onnx import OnnxImportError
from mirlo.testing.oracle import exact_session

HIDDEN, BATCH, FEATURES, LENGTH = 8, 2, 6, 4
NAMES = ["x", "W", "R", "B", "lengths", "h", "c", "", "ws", "wz", "rs", "rz"]


def quantized(rng: np.random.Generator, directions: int, size: int, signed: bool, columns: bool) -> list[np.ndarray]:
    """Return codes, scales and zero points; signed codes of 7 bits, for ONNX Runtime saturates others on AVX2."""
    least, most = (-63, 64) if signed else (0, 256)
    codes = rng.integers(least, most, (directions, size, 4 * HIDDEN)).astype(np.int8 if signed else np.uint8)
    scales = rng.uniform(0.005, 0.01, (directions, 4 * HIDDEN) if columns else directions).astype(np.float32)
    zero = np.full(scales.shape, 0 if signed else 128, codes.dtype)
    return [codes, scales, zero]


def model(seed: int, direction: str, signed: bool, columns: bool, given: str, length: Any = LENGTH) -> Any:
    rng = np.random.default_rng(seed)
    directions = 2 if direction == "bidirectional" else 1
    inits = dict(zip(("W", "ws", "wz"), quantized(rng, directions, FEATURES, signed, columns), strict=True))
    inits |= dict(zip(("R", "rs", "rz"), quantized(rng, directions, HIDDEN, signed, columns), strict=True))
    inits["B"] = rng.normal(size=(directions, 8 * HIDDEN)).astype(np.float32)
    inits["lengths"] = np.int32([LENGTH, LENGTH - 1])
    inits["h"], inits["c"] = (rng.normal(size=(directions, BATCH, HIDDEN)).astype(np.float32) * 0.3 for _ in range(2))
    left_out = {"lengths", "h", "c"} - set(given.split())
    used = ["" if name in left_out else name for name in NAMES]
    node = helper.make_node(
        "DynamicQuantizeLSTM", used, ["y", "yh", "yc"], domain="com.microsoft", direction=direction, hidden_size=HIDDEN
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [length, BATCH, FEATURES])
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "yh", "yc")]
    weights = [numpy_helper.from_array(array, name) for name, array in inits.items() if name in used]
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", [x], outputs, weights)
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("direction", "signed", "columns", "given", "length"),
    [
        ("forward", True, False, "", LENGTH),
        ("forward", False, True, "h c", LENGTH),
        ("forward", False, False, "lengths", LENGTH),
        ("reverse", True, True, "h c", LENGTH),
        ("bidirectional", False, False, "", LENGTH),
        ("bidirectional", True, True, "h c", "n"),
    ],
)
def test_dynamic_quantize_lstm(direction: str, signed: bool, columns: bool, given: str, length: Any) -> None:
    made = model(1, direction, signed, columns, given, length)
    x = np.random.default_rng(2).normal(size=(LENGTH, BATCH, FEATURES)).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # else each thread quantizes its part of the batch by itself
    expected = exact_session(made, options).run(None, {"x": x})
    for one, other in zip(mirlo.compile(made)(x), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_scales_of_other_shapes_are_refused() -> None:
    made = model(1, "forward", True, False, "")
    at = next(i for i, init in enumerate(made.graph.initializer) if init.name == "ws")
    made.graph.initializer[at].CopyFrom(numpy_helper.from_array(np.ones(3, np.float32), "ws"))
    with pytest.raises(OnnxImportError, match=r"must be \[1\] or \[1, 32\], got f32\[3\]"):
        mirlo.compile(made)
