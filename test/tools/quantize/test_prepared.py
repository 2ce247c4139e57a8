"""Changes of models around quantization: what is merged or scaled computes the same, and integers stay integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import F32, make_model, node

from mirlo.tools.quantize.integer_io import with_integer_io
from mirlo.tools.quantize.network import Network
from mirlo.tools.quantize.prepare import equalize, fold

RNG = np.random.default_rng(3)


def _random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def _results(model: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})


def _channels(count: int) -> np.ndarray:
    """Return magnitudes of channels that differ by a factor of 30."""
    return np.logspace(0, 1.5, count, dtype=np.float32)


SIX = _channels(6)
FIRST: dict[str, tuple[tuple[Any, ...], dict[str, Any], dict[str, np.ndarray]]] = {
    "Conv": (("Conv", "x w"), {"pads": [1, 1, 1, 1]}, {"w": _random(6, 4, 3, 3) * SIX.reshape(-1, 1, 1, 1)}),
    "Conv with bias": (("Conv", "x w b"), {}, {"w": _random(6, 4, 1, 1) * SIX.reshape(-1, 1, 1, 1), "b": _random(6)}),
    "Gemm": (("Gemm", "x w"), {}, {"w": _random(4, 6) * SIX}),
    "Gemm of rows": (
        ("Gemm", "x w b"), {"transB": 1, "alpha": 0.5, "beta": 2.0},
        {"w": _random(6, 4) * SIX.reshape(-1, 1), "b": _random(1)},
    ),
}  # fmt: skip
SECOND: dict[str, tuple[tuple[Any, ...], dict[str, Any], np.ndarray, bool]] = {
    "Conv": (("Conv", "r v"), {}, _random(5, 6, 2, 2), True),
    "depthwise": (("Conv", "r v"), {"group": 6}, _random(6, 1, 2, 2), True),
    "in groups": (("Conv", "r v"), {"group": 2}, _random(4, 3, 2, 2), False),
    "Gemm": (("Gemm", "r v"), {}, _random(6, 3), True),
    "Gemm of rows": (("Gemm", "r v"), {"transB": 1}, _random(3, 6), True),
    "MatMul": (("MatMul", "r v"), {}, _random(6, 3), True),
    "Gemm of columns": (("Gemm", "r v"), {"transA": 1}, _random(7, 3), False),
    "weights first": (("MatMul", "v r"), {}, _random(2, 7), False),
    "no product": (("Mul", "r v"), {}, _random(6), False),
}  # fmt: skip


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("second", SECOND)
def test_equalized_products_compute_the_same(first: str, second: str) -> None:
    """Channels meet halfway where the second node reads the data of the first as rows of its weights."""
    (operator, inputs), attributes, constants = FIRST[first]
    (reader, read), options, weights, is_scaled = SECOND[second]
    is_image = operator == "Conv"
    if is_image != (reader == "Conv" or second == "no product"):
        return
    weights = weights.reshape(6, 1, 1) if second == "no product" else weights
    shape = (7, 4, 5, 5) if is_image else (7, 4)
    nodes = [
        node(operator, inputs, "a", name="first", **attributes), node("Relu", "a", "r", name="relu"),
        node(reader, read, "y", name="second", **options),
    ]  # fmt: skip
    values = {"r": (F32, None), "y": (F32, None)}
    model = make_model(nodes, {"x": (F32, list(shape))}, ["y"], {**constants, "v": weights}, output_types=values)
    seen = onnx.ModelProto()
    seen.CopyFrom(model)
    seen.graph.output.append(helper.make_tensor_value_info("r", F32, None))
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    expected, middle = _results(seen, x)
    network = Network.of(model)
    fold(network)
    largest = np.abs(middle).max(tuple(i for i in range(middle.ndim) if i != 1))
    divided = equalize(network, {"r": largest})
    assert set(divided) == ({"a", "r"} if is_scaled else set())
    (found,) = _results(network.message(network.nodes), x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
    if is_scaled:
        axis = 0 if second in ("depthwise", "Gemm", "MatMul") else 1
        rows = np.abs(np.moveaxis(weights, axis, 0)).reshape(6, -1).max(1)
        both = (largest / divided["r"], rows * divided["r"])
        ratios = both[0] / both[1]
        np.testing.assert_allclose(ratios, ratios[0], rtol=1e-4)


@pytest.mark.parametrize("form", ["plain", "of rows", "read twice", "training", "ConvTranspose"])
def test_normalizations_are_merged_into_products(form: str) -> None:
    variance = np.abs(_random(6)) + 0.5
    constants = {"g": _random(6), "b": _random(6), "m": _random(6), "v": variance}
    attributes: dict[str, Any] = {"epsilon": 0.01}
    if form == "of rows":
        product, shape = node("Gemm", "x w c", "a", name="p", transB=1, beta=3.0), (3, 4)
        constants |= {"w": _random(6, 4), "c": _random(1, 6)}
    elif form == "ConvTranspose":
        product, shape = node("ConvTranspose", "x w", "a", name="p"), (2, 4, 5, 5)
        constants |= {"w": _random(4, 6, 1, 1)}
    else:
        product, shape = node("Conv", "x w", "a", name="p"), (2, 4, 5, 5)
        constants |= {"w": _random(6, 4, 1, 1)}
    nodes = [
        product,
        node("Identity", "a", "i", name="same"),
        node("BatchNormalization", "i g b m v", "y", **attributes),
    ]
    outputs = ["y", "a"] if form == "read twice" else ["y"]
    if form == "training":
        nodes[-1] = helper.make_node("BatchNormalization", list("igbmv"), ["y", "s", "t"], training_mode=1)
    model = make_model(
        nodes, {"x": (F32, list(shape))}, outputs, constants, output_types={"y": (F32, None), "a": (F32, None)}
    )
    network = Network.of(model)
    fold(network)
    is_merged = form in ("plain", "of rows")
    assert len(network.nodes) == (1 if is_merged else 2)
    x = _random(*shape)
    for found, expected in zip(_results(network.message(network.nodes), x), _results(model, x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def _quantized(**changed: Any) -> onnx.ModelProto:
    """Return a model that quantizes its input, multiplies, and dequantizes its output."""
    constants = {
        "s": np.float32(0.5), "z": np.int8(3), "t": np.float32(0.25), "u": np.uint8(7), "w": np.eye(4, dtype=np.int8),
        "n": np.int8(0), **changed.get("constants", {}),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("QLinearMatMul", ["q", "s", "z", "w", "s", "n", "t", "u"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "t", "u"], ["y"]),
        *changed.get("nodes", ()),
    ]
    names = ["y", *changed.get("outputs", ())]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4]) for name in names],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)


@pytest.mark.parametrize(
    ("changed", "kinds"),
    [
        ({}, ("INT8", "UINT8")),
        ({"nodes": [helper.make_node("Neg", ["x"], ["r"])], "outputs": ["r"]}, ("FLOAT", "UINT8", "FLOAT")),
        ({"nodes": [helper.make_node("Neg", ["y"], ["r"])], "outputs": ["r"]}, ("INT8", "FLOAT", "FLOAT")),
        ({"constants": {"t": np.full(4, 0.25, "f4"), "u": np.full(4, 7, "u1")}}, ("INT8", "FLOAT")),
    ],
)  # fmt: skip
def test_inputs_and_outputs_of_one_scale_become_integers(changed: Any, kinds: tuple[str, ...]) -> None:
    result = with_integer_io(_quantized(**changed))
    values = [*result.graph.input, *result.graph.output]
    assert tuple(TensorProto.DataType.Name(value.type.tensor_type.elem_type) for value in values) == kinds
    known = {"x.scale": "0.5", "x.zero_point": "3"} if kinds[0] == "INT8" else {}
    known |= {"y.scale": "0.25", "y.zero_point": "7"} if kinds[1] == "UINT8" else {}
    assert {entry.key: entry.value for entry in result.metadata_props} == known
    operators = [each.op_type for each in result.graph.node]
    assert ("QuantizeLinear" in operators) == (kinds[0] == "FLOAT")
    assert ("DequantizeLinear" in operators) == (kinds[1] == "FLOAT")
    used = {name for each in result.graph.node for name in each.input}
    assert {tensor.name for tensor in result.graph.initializer} <= used
    onnx.checker.check_model(result)
