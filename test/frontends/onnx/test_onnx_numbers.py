"""Forms that ONNX's own cases leave out (older operator sets, unusual attributes), compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx_models import BOOL, F32, I64, make_model, node

import mirlo
from mirlo.testing import oracle
from mirlo.testing.oracle import exact_session

I8, U8 = np.int8, np.uint8
IMAGE = (1, 4, 6, 7)


def compare(model: Any, *arrays: np.ndarray, tolerance: float = 1e-4) -> None:
    names = [value.name for value in model.graph.input]
    session = exact_session(model)
    wanted = session.run(None, dict(zip(names, arrays, strict=True)))
    results = mirlo.compile(model)(*arrays)
    for found, expected in zip(results if isinstance(results, (tuple, list)) else (results,), wanted, strict=True):
        assert np.asarray(found).dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


# operator set, node, constants; the data input is "x", an image of 4 channels
FORMS: dict[str, tuple[int, Any, dict[str, Any]]] = {
    "softmax 11": (11, node("Softmax", "x", "y", axis=2), {}),
    "log softmax 11": (11, node("LogSoftmax", "x", "y"), {}),
    "hardmax 11": (11, node("Hardmax", "x", "y", axis=-2), {}),
    "clip 7": (7, node("Clip", "x", "y", min=-0.5, max=0.25), {}),
    "clip 11, one bound": (11, node("Clip", "x _ top", "y"), {"top": np.float32(0.25)}),
    "dropout 7": (7, node("Dropout", "x", "y", ratio=0.3), {}),
    "squeeze 11": (11, node("Squeeze", "x", "y", axes=[0]), {}),
    "squeeze all": (13, node("Squeeze", "x", "y"), {}),
    "unsqueeze 11": (11, node("Unsqueeze", "x", "y", axes=[1, -1]), {}),
    "split 11": (11, node("Split", "x", "y z", axis=1, split=[1, 3]), {}),
    "split equal": (13, node("Split", "x", "y z", axis=1), {}),
    "split 18, uneven": (18, node("Split", "x", "y z", axis=3, num_outputs=2), {}),
    "slice 9": (9, node("Slice", "x", "y", starts=[1, -3], ends=[100, -1], axes=[1, 3]), {}),
    "slice backwards": (
        13, node("Slice", "x s e a t", "y"),
        {"s": np.array([-1, 5]), "e": np.array([-100, 0]), "a": np.array([1, 3]), "t": np.array([-1, -2])},
    ),
    "pad 7": (7, node("Pad", "x", "y", pads=[0, 0, 1, 2, 0, 0, 3, 0], value=1.5), {}),
    "pad reflect": (11, node("Pad", "x p", "y", mode="reflect"), {"p": np.array([0, 0, 2, 1, 0, 0, 1, 3])}),
    "pad crops": (13, node("Pad", "x p", "y"), {"p": np.array([0, 1, -1, 0, 0, 0, 2, -2])}),
    "top k 9": (9, node("TopK", "x", "y z", k=3), {}),
    "top k 11, smallest": (11, node("TopK", "x k", "y z", largest=0, axis=2), {"k": np.array([2])}),
    "reduce 11": (11, node("ReduceMean", "x", "y", axes=[1, 3], keepdims=0), {}),
    "reduce 18, nothing": (
        18, node("ReduceSumSquare", "x a", "y", noop_with_empty_axes=1), {"a": np.array([], np.int64)},
    ),
    "reduce l2": (13, node("ReduceL2", "x", "y", axes=[-1]), {}),
    "upsample 7": (7, node("Upsample", "x", "y", scales=[1.0, 1.0, 2.0, 3.0]), {}),
    "upsample 9, linear": (9, node("Upsample", "x s", "y", mode="linear"), {"s": np.float32([1, 1, 2, 2])}),
    "resize 10": (10, node("Resize", "x s", "y"), {"s": np.float32([1, 1, 2, 2])}),
    "resize 11, sizes": (
        11, node("Resize", "x r s z", "y", mode="linear", coordinate_transformation_mode="align_corners"),
        {"r": np.float32([]), "s": np.float32([]), "z": np.array([1, 4, 9, 10])},
    ),
    "resize 13, cubic": (13, node("Resize", "x _ s", "y", mode="cubic"), {"s": np.float32([1, 1, 1.5, 0.6])}),
    "resize 18, axes": (
        18, node("Resize", "x _ _ z", "y", axes=[2, 3], keep_aspect_ratio_policy="not_larger"),
        {"z": np.array([12, 12])},
    ),
    "batch norm 7": (
        7, node("BatchNormalization", "x s b m v", "y", epsilon=1e-3),
        {name: np.abs(numbers(4, seed=i)) + 0.5 for i, name in enumerate("sbmv")},
    ),
    "instance norm": (7, node("InstanceNormalization", "x s b", "y"), {"s": numbers(4), "b": numbers(4, seed=1)}),
    "layer norm, 2 dims": (
        17, node("LayerNormalization", "x s b", "y", axis=2), {"s": numbers(6, 7), "b": numbers(6, 7)},
    ),
    "group norm 18": (18, node("GroupNormalization", "x s b", "y", num_groups=2), {"s": numbers(2), "b": numbers(2)}),
    "group norm 21": (21, node("GroupNormalization", "x s b", "y", num_groups=2), {"s": numbers(4), "b": numbers(4)}),
    "mean variance norm": (9, node("MeanVarianceNormalization", "x", "y"), {}),
    "lrn": (7, node("LRN", "x", "y", size=3, alpha=0.1, bias=2.0), {}),
    "lp norm 1": (7, node("LpNormalization", "x", "y", p=1, axis=1), {}),
    "average pool, ceil": (10, node("AveragePool", "x", "y", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1), {}),
    "average pool, pads": (
        7, node("AveragePool", "x", "y", kernel_shape=[3, 2], pads=[1, 0, 1, 1], count_include_pad=1), {},
    ),
    "max pool, dilated": (10, node("MaxPool", "x", "y", kernel_shape=[2, 2], dilations=[2, 3], strides=[1, 2]), {}),
    "max pool, same": (8, node("MaxPool", "x", "y", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_LOWER"), {}),
    "max pool, indices": (8, node("MaxPool", "x", "y z", kernel_shape=[2, 2], strides=[2, 2]), {}),
    "global pools": (7, node("GlobalMaxPool", "x", "y"), {}),
    "global lp pool 3": (7, node("GlobalLpPool", "x", "y", p=3), {}),
    "conv, same": (11, node("Conv", "x w b", "y", auto_pad="SAME_UPPER", strides=[2, 3]),
                   {"w": numbers(6, 4, 3, 2), "b": numbers(6)}),
    "conv, depthwise": (11, node("Conv", "x w", "y", group=4, pads=[1, 1, 1, 1]), {"w": numbers(8, 1, 3, 3)}),
    "conv, dilated": (11, node("Conv", "x w", "y", dilations=[2, 1], pads=[2, 0, 0, 1]), {"w": numbers(2, 4, 3, 3)}),
    "conv transpose": (
        11, node("ConvTranspose", "x w b", "y", strides=[2, 2], pads=[1, 0, 1, 1], output_padding=[1, 0]),
        {"w": numbers(4, 3, 3, 3), "b": numbers(3)},
    ),
    "conv transpose, shape": (
        11, node("ConvTranspose", "x w", "y", strides=[2, 2], output_shape=[12, 15]), {"w": numbers(4, 3, 3, 3)},
    ),
    "conv transpose, groups": (
        11, node("ConvTranspose", "x w", "y", group=2, auto_pad="SAME_UPPER", strides=[2, 1]),
        {"w": numbers(4, 2, 3, 3)},
    ),
    "pow, integers": (13, node("Pow", "x p", "y"), {"p": np.array(3)}),
    "sum of three": (8, node("Sum", "x a x", "y"), {"a": numbers(4, 1, 1)}),
    "mean of three": (8, node("Mean", "x a x", "y"), {"a": numbers(4, 1, 1)}),
    "max of three": (8, node("Max", "x a b", "y"), {"a": np.float32(0.1), "b": numbers(7)}),
    "flatten 0": (11, node("Flatten", "x", "y", axis=0), {}),
    "flatten -1": (11, node("Flatten", "x", "y", axis=-1), {}),
    "expand": (11, node("Expand", "x s", "y"), {"s": np.array([3, 1, 1, 1, 7])}),
    "cumsum": (11, node("CumSum", "x a", "y", reverse=1, exclusive=1), {"a": np.array(-1)}),
    "trilu": (14, node("Trilu", "x k", "y", upper=0), {"k": np.array(1)}),
    "space to depth": (13, node("SpaceToDepth", "x", "y", blocksize=1), {}),
    "scatter 9": (9, node("Scatter", "x i u", "y", axis=1),
                  {"i": np.zeros((1, 1, 6, 7), np.int64), "u": numbers(1, 1, 6, 7)}),
    "quantize per channel": (
        13, node("QuantizeLinear", "x s z", "y", axis=1),
        {"s": np.float32([0.1, 0.2, 0.3, 0.01]), "z": I8([0, 3, -4, 100])},
    ),
}  # fmt: skip


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", FORMS)
def test_form(name: str) -> None:
    if name == "reduce 18, nothing" and oracle.is_old():
        pytest.skip("this ONNX Runtime ignores noop_with_empty_axes")
    opset, made, constants = FORMS[name]
    outputs = list(made.output)
    compare(make_model([made], {"x": (F32, IMAGE)}, outputs, constants, opset=opset), numbers(*IMAGE))


def of_microsoft(operator: str, inputs: str, outputs: str = "y", **attributes: Any) -> Any:
    return node(operator, inputs, outputs, domain="com.microsoft", **attributes)


SCALES = {
    "s1": np.float32(0.05), "z1": U8(130), "s2": np.float32(0.02), "z2": U8(110), "s3": np.float32(0.07), "z3": U8(90),
}  # fmt: skip
BYTES = np.random.default_rng(1).integers(0, 255, IMAGE).astype(U8)
MATRIX = np.random.default_rng(2).integers(0, 255, (7, 5)).astype(U8)

# of com.microsoft: node, constants, whether the data is quantized
CONTRIBUTED: dict[str, tuple[Any, dict[str, Any], bool]] = {
    "gelu": (of_microsoft("Gelu", "x"), {}, False),
    "bias gelu": (of_microsoft("BiasGelu", "x b"), {"b": numbers(7)}, False),
    "fast gelu": (of_microsoft("FastGelu", "x b"), {"b": numbers(7)}, False),
    "quick gelu": (of_microsoft("QuickGelu", "x", alpha=1.5), {}, False),
    "matmul": (of_microsoft("FusedMatMul", "x w", transB=1, alpha=0.5), {"w": numbers(3, 7)}, False),
    "skip": (of_microsoft("SkipLayerNormalization", "v k s b c", "y _ _ z", epsilon=1e-5),
             {"v": numbers(2, 3, 7), "k": numbers(2, 3, 7, seed=3), "s": numbers(7), "b": numbers(7), "c": numbers(7)},
             False),
    "skip simplified": (of_microsoft("SkipSimplifiedLayerNormalization", "v k s"),
                        {"v": numbers(2, 3, 7), "k": numbers(2, 3, 7, seed=3), "s": numbers(7)}, False),
    "skip simplified, bias": (of_microsoft("SkipSimplifiedLayerNormalization", "v k s b"),
                              {"v": numbers(2, 3, 7), "k": numbers(2, 3, 7, seed=3), "s": numbers(7), "b": numbers(7)},
                              False),
    "q add": (of_microsoft("QLinearAdd", "x s1 z1 b s2 z2 s3 z3"), {**SCALES, "b": BYTES[:, :1]}, True),
    "q mul": (of_microsoft("QLinearMul", "x s1 z1 b s2 z2 s3 z3"), {**SCALES, "b": BYTES[:, :1]}, True),
    "q sigmoid": (of_microsoft("QLinearSigmoid", "x s1 z1 s2 z2"), SCALES, True),
    "q leaky relu": (of_microsoft("QLinearLeakyRelu", "x s1 z1 s2 z2", alpha=0.1), SCALES, True),
    "q pool": (of_microsoft("QLinearGlobalAveragePool", "x s1 z1 s2 z2"), SCALES, True),
    "q concat": (of_microsoft("QLinearConcat", "s3 z3 x s1 z1 b s2 z2", axis=1), {**SCALES, "b": BYTES}, True),
    "q gemm": (of_microsoft("QGemm", "m s1 z1 w s2 z2 c s3 z3", transB=1),
               {**SCALES, "m": MATRIX, "w": MATRIX[:4], "c": np.array([1, -500, 300, 0], np.int32)}, True),
    "q gemm of columns": (of_microsoft("QGemm", "m s1 z1 w s5 z5 c"), {**SCALES, "m": MATRIX, "w": MATRIX[:5],
        "s5": np.float32([1, 2, 3, 4, 5]), "z5": U8([9, 0, 7, 8, 99]), "c": np.arange(5, dtype=np.int32)}, False),
    "q softmax": (of_microsoft("QLinearSoftmax", "x s1 z1 s4 z4", opset=13, axis=1),
                  {**SCALES, "s4": np.float32(1 / 256), "z4": U8(0)}, True),
    "q softmax of old": (of_microsoft("QLinearSoftmax", "x s1 z1 s4 z4", opset=12, axis=2),
                         {**SCALES, "s4": np.float32(1 / 256), "z4": U8(0)}, True),
    "q average pool": (of_microsoft("QLinearAveragePool", "x s1 z1 s2 z2", kernel_shape=[2, 3], pads=[0, 1, 1, 0]),
                       SCALES, True),
    "q average pool last": (of_microsoft("QLinearAveragePool", "x s1 z1 s2 z2", kernel_shape=[2, 2], channels_last=1),
                            SCALES, True),
    "q where": (of_microsoft("QLinearWhere", "t x s1 z1 b s2 z2 s3 z3"),
                {**SCALES, "b": BYTES[:, :1], "t": BYTES > 100}, True),
    "q": (of_microsoft("QuantizeLinear", "x s1 z1"), SCALES, False),
    "dq": (of_microsoft("DequantizeLinear", "x s1 z1"), SCALES, True),
    "nhwc max pool": (of_microsoft("NhwcMaxPool", "x", kernel_shape=[2, 3], strides=[2, 1]), {}, True),
    "dynamic matmul": (of_microsoft("DynamicQuantizeMatMul", "x w s z"),
                       {"w": MATRIX, "s": np.float32([0.01]), "z": U8([120])}, False),
    "dynamic matmul columns": (of_microsoft("DynamicQuantizeMatMul", "x w s z c"),
                               {"w": MATRIX, "s": np.float32([0.01, 0.02, 0.03, 0.04, 0.05]),
                                "z": U8([120, 0, 255, 7, 99]), "c": numbers(5)}, False),
    "expand dims": (of_microsoft("ExpandDims", "x a"), {"a": np.array(2, np.int32)}, False),
    "distances": (of_microsoft("CDist", "a b", metric="euclidean"), {"a": numbers(4, 3), "b": numbers(5, 3)}, False),
    "square distances": (of_microsoft("CDist", "a b", metric="sqeuclidean"),
                         {"a": numbers(4, 3), "b": numbers(5, 3)}, False),
    "inverse": (of_microsoft("Inverse", "m"), {"m": numbers(2, 4, 4) + 3 * np.eye(4, dtype=np.float32)}, False),
    "trilu": (of_microsoft("Trilu", "x k", upper=0), {"k": np.array(1)}, False),
    "gather nd": (of_microsoft("GatherND", "x i"), {"i": np.array([[0, 2], [0, 1]])}, False),
    "pad": (of_microsoft("Pad", "x p v"), {"p": np.array([0, 0, 1, 2, 0, 0, 3, 0]), "v": np.float32([2])}, False),
    "range": (of_microsoft("Range", "a b c"), {"a": np.array(2), "b": np.array(11), "c": np.array(3)}, False),
    "gather blocks": (of_microsoft("GatherBlockQuantized", "w i s", block_size=16, bits=8),
                      {"w": np.random.default_rng(3).integers(0, 255, (6, 32)).astype(U8),
                       "i": np.array([[5, 0, 2]]), "s": np.abs(numbers(6, 2)) + 0.1}, False),
}  # fmt: skip


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", CONTRIBUTED)
def test_contributed(name: str) -> None:
    if name == "expand dims" and oracle.is_old():
        pytest.skip("this ONNX Runtime crashes")
    made, constants, is_quantized = CONTRIBUTED[name]
    outputs = [output for output in made.output if output]
    data = BYTES if is_quantized else numbers(*IMAGE)
    inputs = {"x": (2 if is_quantized else F32, IMAGE)}
    used = {key: array for key, array in constants.items() if key in made.input}
    model = make_model([made, node("Identity", "x", "same")], inputs, [*outputs, "same"], used)
    model.opset_import.add(domain="com.microsoft", version=1)
    compare(model, data, tolerance=1.01 if is_quantized else 1e-3)


@pytest.mark.parametrize(("trans_a", "trans_b"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_gemm(trans_a: int, trans_b: int) -> None:
    a, b = ((5, 3) if trans_a else (3, 5)), ((4, 5) if trans_b else (5, 4))
    made = node("Gemm", "a b c", "y", transA=trans_a, transB=trans_b, alpha=0.5, beta=2.0)
    model = make_model([made], {"a": (F32, a)}, ["y"], {"b": numbers(*b), "c": numbers(3, 1)})
    compare(model, numbers(*a, seed=2))


def test_quantized_matmul_with_zero_points() -> None:
    generator = np.random.default_rng(0)
    constants = {
        "b": generator.integers(-128, 127, (8, 4)).astype(I8), "sa": np.float32(0.05), "za": U8(130),
        "sb": np.float32([0.01, 0.02, 0.03, 0.04]), "zb": I8([1, 0, -2, 3]), "sy": np.float32(0.1), "zy": U8(120),
    }  # fmt: skip
    model = make_model(
        [node("QLinearMatMul", "a sa za b sb zb sy zy", "y")], {"a": (2, [3, 8])}, ["y"], constants, opset=13
    )
    compare(model, generator.integers(0, 255, (3, 8)).astype(U8), tolerance=1)


def test_quantized_conv_pads_with_the_zero_point() -> None:
    """Weights have 7 bits: with 8, ONNX Runtime's sums of two products saturate on processors without VNNI."""
    generator = np.random.default_rng(0)
    constants = {
        "w": generator.integers(-64, 64, (6, 4, 3, 3)).astype(I8), "sx": np.float32(0.05), "zx": U8(130),
        "sw": np.float32(0.02), "zw": I8(0), "sy": np.float32(0.5), "zy": U8(100),
        "b": generator.integers(-999, 999, 6).astype(np.int32),
    }  # fmt: skip
    made = node("QLinearConv", "x sx zx w sw zw sy zy b", "y", pads=[1, 1, 1, 1], strides=[2, 1])
    model = make_model([made], {"x": (2, IMAGE)}, ["y"], constants, opset=13)
    compare(model, generator.integers(0, 255, IMAGE).astype(U8), tolerance=1)


@pytest.mark.sample(6)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("operator", "gates", "outputs"), [("LSTM", 4, "y h c"), ("GRU", 3, "y h"), ("RNN", 1, "y h")])
def test_recurrent_layers(operator: str, gates: int, outputs: str, direction: str) -> None:
    """With biases, initial states and sequences of different lengths."""
    directions, hidden = 2 if direction == "bidirectional" else 1, 5
    constants = {
        "w": numbers(directions, gates * hidden, 3, seed=1), "r": numbers(directions, gates * hidden, hidden, seed=2),
        "b": numbers(directions, 2 * gates * hidden, seed=3), "l": np.array([4, 2], np.int32),
        "s": numbers(directions, 2, hidden, seed=4),
    }  # fmt: skip
    made = node(operator, "x w r b l s", outputs, hidden_size=hidden, direction=direction)
    if operator == "GRU":
        made.attribute.add(name="linear_before_reset", type=2, i=1)
    model = make_model([made], {"x": (F32, [4, 2, 3])}, outputs.split(), constants, opset=14)
    compare(model, numbers(4, 2, 3), tolerance=1e-3)


def test_integers_that_f64_does_not_hold() -> None:
    big = 2**63 - 1
    constants = {"top": np.array(big - 1), "low": np.array(-(2**62) - 1), "s": np.array([2])}
    nodes = [
        node("Clip", "x low top", "y"),
        node("ConstantOfShape", "s", "z", value=numpy_helper.from_array(np.array([big]))),
    ]
    model = make_model(nodes, {"x": (I64, [3])}, ["y", "z"], constants)
    compare(model, np.array([big, -big, 5]), tolerance=0)


def test_sequences() -> None:
    """Sequences that are split, reordered and joined; sequences collected in a loop."""
    nodes = [
        node("SplitToSequence", "x two", "parts", axis=1),
        node("SequenceAt", "parts minus", "last"),
        node("SequenceErase", "parts zero", "rest"),
        node("SequenceInsert", "rest last zero", "transposed"),
        node("ConcatFromSequence", "transposed", "y", axis=1),
        node("SequenceLength", "transposed", "n"),
    ]
    constants = {"two": np.array(2), "minus": np.array(-1), "zero": np.array(0)}
    compare(make_model(nodes, {"x": (F32, [2, 5, 3])}, ["y", "n"], constants, opset=13), numbers(2, 5, 3))


def test_loop_of_known_length() -> None:
    """Double x in each iteration; collect the states, and stop the loop early by a condition."""
    body = helper.make_graph(
        [node("Add", "state state", "next"), node("Less", "round three", "more"), node("Identity", "next", "seen")],
        "body",
        [
            helper.make_tensor_value_info("round", I64, []),
            helper.make_tensor_value_info("going", BOOL, []),
            helper.make_tensor_value_info("state", F32, [2]),
        ],
        [
            helper.make_tensor_value_info("more", BOOL, []),
            helper.make_tensor_value_info("next", F32, [2]),
            helper.make_tensor_value_info("seen", F32, [2]),
        ],
    )
    constants = {"limit": np.array(10), "yes": np.array(True), "three": np.array(3)}
    model = make_model(
        [node("Loop", "limit yes x", "y all", body=body)], {"x": (F32, [2])}, ["y", "all"], constants,
        output_types={"y": (F32, [2]), "all": (F32, [None, 2])},
    )  # fmt: skip
    compare(model, numbers(2))


@pytest.mark.parametrize("backwards", [0, 1])
def test_scan(backwards: int) -> None:
    body = helper.make_graph(
        [node("Add", "total element", "sum"), node("Identity", "sum", "seen")],
        "body",
        [helper.make_tensor_value_info(name, F32, [2]) for name in ("total", "element")],
        [helper.make_tensor_value_info(name, F32, [2]) for name in ("sum", "seen")],
    )
    made = node(
        "Scan", "zero x", "y all", body=body, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1],
        scan_input_directions=[backwards], scan_output_directions=[backwards],
    )  # fmt: skip
    model = make_model([made], {"x": (F32, [2, 4])}, ["y", "all"], {"zero": np.zeros(2, np.float32)})
    compare(model, numbers(2, 4))


ROWS = np.random.default_rng(5)
PACKED = ROWS.integers(0, 255, (5, 2, 16)).astype(U8)

# of com.microsoft, on x [2, 3, 8]: node, constants
TRANSFORMER: dict[str, tuple[Any, dict[str, Any]]] = {
    "multi head": (of_microsoft("MultiHeadAttention", "x k v b", num_heads=2),
                   {"k": numbers(2, 5, 8, seed=1), "v": numbers(2, 5, 8, seed=2), "b": numbers(24)}),
    "multi head, masked": (of_microsoft("MultiHeadAttention", "x k v _ m a", num_heads=4, scale=0.3),
                           {"k": numbers(2, 5, 8, seed=1), "v": numbers(2, 5, 8, seed=2), "a": numbers(1, 4, 3, 5),
                            "m": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)}),
    "multi head, past": (of_microsoft("MultiHeadAttention", "x k v _ _ _ p q", "y n o", num_heads=2),
                         {"k": numbers(2, 3, 8, seed=1), "v": numbers(2, 3, 8, seed=2),
                          "p": numbers(2, 2, 4, 4), "q": numbers(2, 2, 4, 4, seed=3)}),
    "attention": (of_microsoft("Attention", "x w b m", num_heads=2),
                  {"w": numbers(8, 24), "b": numbers(24), "m": np.array([[1, 1, 1], [1, 0, 0]], np.int32)}),
    "attention, causal": (of_microsoft("Attention", "x w b", num_heads=2, unidirectional=1),
                          {"w": numbers(8, 24), "b": numbers(24)}),
    "attention, lengths": (of_microsoft("Attention", "x w b m", num_heads=2),
                           {"w": numbers(8, 24), "b": numbers(24), "m": np.array([3, 2], np.int32)}),
    "attention, masks": (of_microsoft("Attention", "x w b m", num_heads=2),
                         {"w": numbers(8, 24), "b": numbers(24),
                          "m": np.array([[[1, 0, 0], [1, 1, 0], [1, 1, 1]], [[1, 1, 1]] * 3], np.int32)}),
    "8 bits": (of_microsoft("MatMulNBits", "m w s", K=64, N=5, bits=8, block_size=32),
               {"m": numbers(3, 64), "w": ROWS.integers(0, 255, (5, 2, 32)).astype(U8), "s": np.abs(numbers(10))}),
    "4 bits, a block that is not full": (of_microsoft("MatMulNBits", "m w s", K=50, N=5, bits=4, block_size=32),
                                         {"m": numbers(3, 50), "w": PACKED, "s": np.abs(numbers(10))}),
    "embeddings, masked": (of_microsoft("EmbedLayerNormalization", "i j e p g a b m", "y n"),
                           {"i": np.array([[1, 2, 3]], np.int32), "j": np.array([[0, 1, 0]], np.int32),
                            "e": numbers(9, 8), "p": numbers(7, 8, seed=1), "g": numbers(2, 8), "a": numbers(8),
                            "b": numbers(8, seed=2), "m": np.array([[1, 1, 0]], np.int32)}),
    "rotary": (of_microsoft("RotaryEmbedding", "x i c s"),
               {"i": np.array([[0, 1, 2], [3, 4, 5]]), "c": numbers(9, 2), "s": numbers(9, 2, seed=1)}),
    "rotary, from": (of_microsoft("RotaryEmbedding", "x i c s", interleaved=1),
                     {"i": np.array([4]), "c": numbers(9, 2), "s": numbers(9, 2, seed=1)}),
    "gemm": (of_microsoft("FusedGemm", "m w b", transB=1, activation="LeakyRelu", activation_alpha=0.2),
             {"m": numbers(3, 8), "w": numbers(5, 8), "b": numbers(5)}),
    "conv": (of_microsoft("FusedConv", "m w b", activation="Relu", pads=[1, 1, 1, 1]),
             {"m": numbers(*IMAGE), "w": numbers(5, 4, 3, 3), "b": numbers(5)}),
    "4 bits": (of_microsoft("MatMulNBits", "m w s", K=64, N=5, bits=4, block_size=32),
               {"m": numbers(3, 64), "w": PACKED, "s": np.abs(numbers(10))}),
    "4 bits, zero points": (of_microsoft("MatMulNBits", "m w s z _ b", K=64, N=5, bits=4, block_size=32),
                            {"m": numbers(3, 64), "w": PACKED, "s": np.abs(numbers(10)), "b": numbers(5),
                             "z": ROWS.integers(0, 255, 5).astype(U8)}),
    "embeddings": (of_microsoft("EmbedLayerNormalization", "i j e p g a b", "y _ z"),
                   {"i": np.array([[1, 2, 3]], np.int32), "j": np.array([[0, 1, 0]], np.int32), "e": numbers(9, 8),
                    "p": numbers(7, 8, seed=1), "g": numbers(2, 8), "a": numbers(8), "b": numbers(8, seed=2)}),
}  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", TRANSFORMER)
def test_transformer_layers(name: str) -> None:
    made, constants = TRANSFORMER[name]
    outputs = [output for output in made.output if output]
    model = make_model([made, node("Identity", "x", "same")], {"x": (F32, [2, 3, 8])}, [*outputs, "same"], constants)
    model.opset_import.add(domain="com.microsoft", version=1)
    compare(model, numbers(2, 3, 8), tolerance=1e-3)
