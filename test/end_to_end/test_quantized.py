"""Quantized models: each form that ONNX has for them, against ONNX Runtime, within one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import mirlo
from mirlo.testing.oracle import exact_session

KINDS = {"u8": (np.uint8, TensorProto.UINT8, 117), "i8": (np.int8, TensorProto.INT8, -3)}


def _random(dtype: type, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.random.default_rng(5).integers(info.min, info.max + 1, shape).astype(dtype)


def _weights(*shape: int) -> np.ndarray:
    """Return int8 weights of 7 bits: without VNNI, ONNX Runtime's sums of two products of u8 and i8 saturate."""
    return np.random.default_rng(5).integers(-64, 64, shape).astype(np.int8)


def _model(nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: dict[str, np.ndarray]) -> Any:
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "quantized", inputs, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def _check(model: Any, *arrays: np.ndarray, steps: int = 0) -> None:
    """Compare; ONNX Runtime rounds once more or less where it requantizes."""
    onnx.checker.check_model(model)
    session = exact_session(model)
    names = [spec.name for spec in session.get_inputs()]
    expected = session.run(None, dict(zip(names, arrays, strict=True)))[0]
    found = np.asarray(mirlo.compile(model, cache=False)(*arrays))
    assert found.dtype == expected.dtype
    assert len(np.unique(expected)) > 4
    assert np.abs(found.astype(np.int64) - expected).max() <= steps


def _network(kind: str, image_shape: Sequence[int | str]) -> Any:
    """Quantized convolutions with a residual add, and a classifier, in the form of QuantizeLinear, DequantizeLinear."""
    dtype, onnx_type, zero = KINDS[kind]
    random, constants, nodes = np.random.default_rng(6), {}, []

    def through_bytes(x: str, scale: float) -> str:
        constants[f"{x}.scale"], constants[f"{x}.zero"] = np.array(scale, np.float32), np.array(zero, dtype)
        parameters = [f"{x}.scale", f"{x}.zero"]
        nodes.append(helper.make_node("QuantizeLinear", [x, *parameters], [f"{x}.bytes"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{x}.bytes", *parameters], [f"{x}.real"]))
        return f"{x}.real"

    def weight(name: str, shape: tuple[int, ...], axis: int) -> str:
        fan_in = np.prod(shape) / shape[axis]
        constants[name] = random.integers(-127, 128, shape).astype(np.int8)
        constants[f"{name}.scale"] = ((random.random(shape[axis]) + 0.5) / 90 / fan_in**0.5).astype(np.float32)
        constants[f"{name}.zero"] = np.zeros(shape[axis], np.int8)
        parameters = [f"{name}.scale", f"{name}.zero"]
        nodes.append(helper.make_node("DequantizeLinear", [name, *parameters], [f"{name}.real"], axis=axis))
        return f"{name}.real"

    def convolution(x: str, y: str, shape: tuple[int, ...], **attributes: Any) -> None:
        constants[f"{y}.bias"] = (random.standard_normal(shape[0]) / 10).astype(np.float32)
        nodes.append(helper.make_node("Conv", [x, weight(f"{y}.w", shape, 0), f"{y}.bias"], [y], **attributes))

    image = through_bytes("x", 3 / 128)
    convolution(image, "a", (16, 3, 3, 3), pads=[1] * 4, strides=[2, 2])
    nodes.append(helper.make_node("Relu", ["a"], ["b"]))
    first = through_bytes("b", 3 / 128)
    convolution(first, "c", (16, 16, 3, 3), pads=[1] * 4)
    nodes.append(helper.make_node("Add", ["c", first], ["d"]))
    convolution(through_bytes("d", 4 / 128), "e", (16, 1, 3, 3), group=16)
    nodes.append(helper.make_node("GlobalAveragePool", [through_bytes("e", 3 / 128)], ["f"]))
    nodes.append(helper.make_node("Flatten", ["f"], ["g"]))
    nodes.append(helper.make_node("MatMul", [through_bytes("g", 1 / 128), weight("h.w", (16, 10), 1)], ["h"]))
    through_bytes("h", 1 / 128)
    nodes.pop()
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, image_shape)
    y = helper.make_tensor_value_info("h.bytes", onnx_type, [image_shape[0], 10])
    return _model(nodes, [x], [y], constants)


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("image_shape", [(1, 3, 16, 16), ("n", 3, 16, 16), ("n", 3, "h", "w")])
def test_quantize_and_dequantize(kind: str, image_shape: tuple[int | str, ...]) -> None:
    x = np.random.default_rng(7).standard_normal((1, 3, 16, 16)).astype(np.float32)
    _check(_network(kind, image_shape), x, steps=1)


@pytest.mark.sample(6)
@pytest.mark.parametrize(("left", "right"), [("u8", "i8"), ("u8", "u8"), ("i8", "i8")])
@pytest.mark.parametrize("zeros", [(0, 0), (7, 0), (7, 3), (0, 3)])
@pytest.mark.parametrize("is_constant", [True, False])
def test_matmul_integer(left: str, right: str, zeros: tuple[int, int], is_constant: bool) -> None:
    kinds = [KINDS[left], KINDS[right]]
    constants = {f"z{i}": np.array(zeros[i], kinds[i][0]) for i in range(2)}
    a, w = _random(kinds[0][0], 9, 21), _random(kinds[1][0], 21, 18)
    inputs = [helper.make_tensor_value_info("a", kinds[0][1], [9, 21])]
    if is_constant:
        constants["w"] = w
    else:
        inputs.append(helper.make_tensor_value_info("w", kinds[1][1], [21, 18]))
    node = helper.make_node("MatMulInteger", ["a", "w", "z0", "z1"], ["y"])
    model = _model([node], inputs, [helper.make_tensor_value_info("y", TensorProto.INT32, [9, 18])], constants)
    found = mirlo.compile(model, cache=False)(*([a] if is_constant else [a, w]))
    np.testing.assert_array_equal(found, (a.astype(int) - zeros[0]) @ (w.astype(int) - zeros[1]))


def test_zero_point_of_run_time() -> None:
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["q", "w", "zero"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [9, 32])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.INT32, [9, 18])]
    model = _model(nodes, inputs, outputs, {"w": _weights(32, 18)})
    _check(model, np.random.default_rng(8).standard_normal((9, 32)).astype(np.float32))


@pytest.mark.parametrize("readers", [1, 2])
@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (0, 2, 1, 0), (0, 0, 0, 0)])
def test_images_quantized_at_run_time(pads: tuple[int, ...], readers: int) -> None:
    """The border is zero also where an image has no zeros, or nothing else; two convolutions read equal bytes."""
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"])]
    nodes += [
        helper.make_node("ConvInteger", ["q", f"w{i}", "zero"], [f"y{i}"], pads=pads, strides=[i + 1] * 2)
        for i in range(readers)
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 9, 7])]
    outputs = [helper.make_tensor_value_info(f"y{i}", TensorProto.INT32, ["a", 8, "b", "c"]) for i in range(readers)]
    model = _model(nodes, inputs, outputs, {f"w{i}": _weights(8, 4, 3, 3) for i in range(readers)})
    session, found = exact_session(model), mirlo.compile(model, cache=False)
    drawn = np.random.default_rng(9).standard_normal((1, 4, 9, 7)).astype(np.float32)
    for x in (drawn, drawn + 20, drawn - 20, np.zeros_like(drawn), np.full_like(drawn, 3)):
        results = found(x) if readers > 1 else [found(x)]
        for result, expected in zip(results, session.run(None, {"x": x}), strict=True):
            np.testing.assert_array_equal(result, expected)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("zero_x", "zero_w"), [(0, 0), (131, 0), (131, 2)])
@pytest.mark.parametrize("image_shape", [(1, 4, 9, 9), ("n", 4, "h", "w")])
def test_conv_integer(zero_x: int, zero_w: int, image_shape: tuple[int | str, ...]) -> None:
    # ONNX Runtime takes weights without a sign here.
    constants = {"w": _random(np.uint8, 8, 4, 3, 3), "zx": np.array(zero_x, np.uint8), "zw": np.array(zero_w, np.uint8)}
    node = helper.make_node("ConvInteger", ["x", "w", "zx", "zw"], ["y"], pads=[1] * 4, strides=[2, 2])
    inputs = [helper.make_tensor_value_info("x", TensorProto.UINT8, image_shape)]
    model = _model(
        [node], inputs, [helper.make_tensor_value_info("y", TensorProto.INT32, ["a", 8, "b", "c"])], constants
    )
    _check(model, _random(np.uint8, 1, 4, 9, 9))


@pytest.mark.parametrize("kind", list(KINDS))
def test_qlinear_matmul(kind: str) -> None:
    dtype, onnx_type, zero = KINDS[kind]
    constants = {
        "sa": np.float32(0.02), "za": np.array(zero, dtype), "w": _weights(24, 18), "sw": np.float32(0.01),
        "zw": np.array(0, np.int8), "sy": np.float32(0.3), "zy": np.array(zero, dtype),
    }  # fmt: skip
    arrays = {name: np.asarray(array) for name, array in constants.items()}
    node = helper.make_node("QLinearMatMul", ["a", "sa", "za", "w", "sw", "zw", "sy", "zy"], ["y"])
    inputs = [helper.make_tensor_value_info("a", onnx_type, [9, 24])]
    model = _model([node], inputs, [helper.make_tensor_value_info("y", onnx_type, [9, 18])], arrays)
    _check(model, _random(dtype, 9, 24), steps=1)


@pytest.mark.parametrize("kind", list(KINDS))
def test_qlinear_conv(kind: str) -> None:
    dtype, onnx_type, zero = KINDS[kind]
    scales = (np.random.default_rng(9).random(8) / 50 + 0.01).astype(np.float32)
    constants = {
        "sx": np.array(0.02, np.float32), "zx": np.array(zero, dtype), "w": _weights(8, 4, 3, 3),
        "sw": scales, "zw": np.zeros(8, np.int8), "sy": np.array(0.4, np.float32), "zy": np.array(zero, dtype),
        "b": np.arange(-400, 400, 100, np.int32),
    }  # fmt: skip
    node = helper.make_node("QLinearConv", ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"], ["y"], pads=[1] * 4)
    inputs = [helper.make_tensor_value_info("x", onnx_type, [1, 4, 9, 9])]
    model = _model([node], inputs, [helper.make_tensor_value_info("y", onnx_type, [1, 8, 9, 9])], constants)
    _check(model, _random(dtype, 1, 4, 9, 9), steps=1)


def test_rows_of_run_time() -> None:
    """A batch whose size is known when the model is called."""
    constants = {"s": np.array(0.02, np.float32), "z": np.array(117, np.uint8), "w": _weights(32, 18)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "s"], ["v"]),
        helper.make_node("MatMul", ["d", "v"], ["m"]),
        helper.make_node("QuantizeLinear", ["m", "s", "z"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 32])]
    model = _model(nodes, inputs, [helper.make_tensor_value_info("y", TensorProto.UINT8, ["rows", 18])], constants)
    _check(model, np.random.default_rng(10).standard_normal((9, 32)).astype(np.float32), steps=1)


INFOS = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}


@pytest.mark.sample(24)
@pytest.mark.parametrize("seed", range(120))
def test_zero_points_and_scales_of_any_origin(seed: int) -> None:
    """Those of weights are constants, which fit in a byte with the weights or do not; those of data are also inputs."""
    random = np.random.default_rng([seed, 3])
    x_type, w_type = (random.choice(list(INFOS)) for _ in range(2))
    is_conv, is_real = random.random() < 0.6, random.random() < 0.5
    groups = int(random.choice([1, 1, 2, 3])) if is_conv else 1
    x_shape: tuple[int, ...] = (2, 2 * groups, 7, 5) if is_conv else (6, 9)
    w_shape: tuple[int, ...] = (4 * groups, 2, 3, 3) if is_conv else (9, 4)

    def byte_of(dtype: type) -> np.ndarray:
        info = np.iinfo(dtype)
        return np.array(random.choice([0, 128, info.max, random.integers(info.min, info.max + 1)])).astype(dtype)

    x, w = _random(x_type, *x_shape), _random(w_type, *w_shape)
    if random.random() < 0.5:
        w = w % 64
    constants, given = {"w": w, "wz": byte_of(w_type)}, {"x": x}
    (given if random.random() < 0.6 else constants)["xz"] = byte_of(x_type)
    attributes: dict[str, Any] = {}
    if is_conv:
        attributes = {
            "group": groups,
            "pads": [int(n) for n in random.integers(0, 3, 4)],
            "strides": [int(n) for n in random.integers(1, 3, 2)],
            "dilations": [int(n) for n in random.integers(1, 3, 2)],
        }
    if is_real:
        constants["ws"] = np.array(0.125, np.float32)
        (given if random.random() < 0.6 else constants)["xs"] = np.array(0.5, np.float32)
        nodes = [
            helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
            helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"]),
            helper.make_node("Conv" if is_conv else "MatMul", ["xf", "wf"], ["y"], **attributes),
        ]
    else:
        name = "ConvInteger" if is_conv else "MatMulInteger"
        nodes = [helper.make_node(name, ["x", "w", "xz", "wz"], ["y"], **attributes)]
    dims = list(x_shape)
    for axis in (0, 2, 3) if is_conv else (0,):
        if random.random() < 0.3:
            dims[axis] = f"d{axis}"  # type: ignore[call-overload]
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), dims if name == "x" else array.shape
        )
        for name, array in given.items()
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT if is_real else TensorProto.INT32, None)
    model = _model(nodes, inputs, [result], constants)

    # The oracle: centred values in f64, which holds each sum exactly.
    kind = "Conv" if is_conv else "MatMul"
    graph = helper.make_graph(
        [helper.make_node(kind, ["a", "b"], ["c"], **attributes)],
        "centred",
        [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in "ab"],
        [helper.make_tensor_value_info("c", TensorProto.DOUBLE, None)],
    )
    known = {**constants, **given}
    centred = [known[name].astype(np.float64) - known[f"{name}z"] for name in "xw"]
    exact = ReferenceEvaluator(helper.make_model(graph)).run(None, dict(zip("ab", centred, strict=True)))[0]
    expected = exact / 16 if is_real else exact
    found = mirlo.compile(model, cache=False).run(given)["y"]
    np.testing.assert_array_equal(found, expected.astype(found.dtype), err_msg=str(attributes))
