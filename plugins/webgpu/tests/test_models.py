"""Models on a device with WebGPU, compared with ONNX Runtime; integer arithmetic compared with numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
from models import model, needs_webgpu
from onnx.helper import make_node as node

import mirlo
from mirlo import Executable, MirloError
from mirlo.extend.runtime import ParameterStore
from mirlo.testing import samples

pytestmark = needs_webgpu()
RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def compare(proto: onnx.ModelProto, feed: Mapping[str, np.ndarray], tolerance: float = 1e-5) -> None:
    """Compare with ONNX Runtime, with a tolerance relative to the largest value."""
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    results = mirlo.compile(proto, target="webgpu", cache=False).run(feed)
    for name, expected in zip(names, session.run(None, feed), strict=True):
        assert results[name].shape == expected.shape and results[name].dtype == expected.dtype
        if expected.dtype.kind == "f":
            error = np.abs(results[name] - expected).max() / np.abs(expected).max()
            assert error <= tolerance, f"'{name}': {error:.1e}"
        else:
            np.testing.assert_array_equal(results[name], expected, err_msg=name)


X = {"x": ("f32", (4, 60))}
SINGLE = {
    "arithmetic": ([node("Mul", ["x", "x"], ["a"]), node("Sub", ["a", "x"], ["y"])], X, "f32", {}),
    "functions": (
        [node("Tanh", ["x"], ["a"]), node("Exp", ["a"], ["b"]), node("Log", ["b"], ["c"]), node("Erf", ["c"], ["y"])],
        X, "f32", {},
    ),
    "softmax": ([node("Softmax", ["x"], ["y"])], X, "f32", {}),
    "normalization": ([node("LayerNormalization", ["x", "s"], ["y"])], X, "f32", {"s": floats(60)}),
    "matmul": ([node("MatMul", ["x", "w"], ["y"])], X, "f32", {"w": floats(60, 33)}),
    "mean": ([node("ReduceMean", ["x", "axis"], ["y"])], X, "f32", {"axis": np.array([1])}),
    "argmax": ([node("ArgMax", ["x"], ["y"], axis=1)], X, "i64", {}),
    "top": ([node("TopK", ["x", "k"], ["v", "y"])], X, "i64", {"k": np.array([5])}),
    "comparison": ([node("Greater", ["x", "zero"], ["y"])], X, "bool", {"zero": np.zeros((), np.float32)}),
    "quantized": (
        [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["y"])],
        X, "f32", {"s": np.array(0.02, np.float32), "z": np.array(7, np.int8)},
    ),
    "transpose": ([node("Transpose", ["x"], ["a"]), node("Cast", ["a"], ["y"], to=3)], X, "i8", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", SINGLE)
def test_agrees_with_onnx_runtime(name: str) -> None:
    nodes, inputs, kind, weights = SINGLE[name]
    compare(model(nodes, inputs, {"y": kind}, weights), {"x": floats(4, 60)})


def test_convolution_and_classes() -> None:
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]), node("Relu", ["a"], ["b"]),
        node("GlobalAveragePool", ["b"], ["c"]), node("Flatten", ["c"], ["d"]),
        node("MatMul", ["d", "v"], ["y"]), node("ArgMax", ["y"], ["best"], axis=1),
    ]  # fmt: skip
    weights = {"w": floats(16, 3, 3, 3), "v": floats(16, 10)}
    proto = model(nodes, {"x": ("f32", ("batch", 3, 12, 12))}, {"y": "f32", "best": "i64"}, weights)
    # Sizes of run time are scalars of kernels; two of them need memory twice.
    for batch in (2, 5):
        compare(proto, {"x": floats(batch, 3, 12, 12)})


def test_gather_by_positions_of_64_bits() -> None:
    nodes = [node("Gather", ["x", "i"], ["y"]), node("Add", ["i", "i"], ["j"])]
    inputs = {"x": ("f32", (50, 8)), "i": ("i64", (3, 7))}
    compare(model(nodes, inputs, {"y": "f32", "j": "i64"}), {"x": floats(50, 8), "i": RNG.integers(-50, 50, (3, 7))})


def test_host_decides_sizes() -> None:
    nodes = [node("NonZero", ["m"], ["y"])]
    compare(model(nodes, {"m": ("f32", (6, 9))}, {"y": "i64"}), {"m": (floats(6, 9) > 0.5).astype(np.float32)})


def test_loop_on_data() -> None:
    nodes = [node("Unique", ["x"], ["y"], sorted=1)]
    compare(model(nodes, {"x": ("i64", (40,))}, {"y": "i64"}), {"x": RNG.integers(-(1 << 40), 1 << 40, 40)})


WIDE = np.array([0, 1, -1, 7, -9, 1 << 31, -(1 << 31), (1 << 40) + 3, -(1 << 62) - 5, (1 << 63) - 1, -(1 << 63)])
INTEGERS = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Max": np.maximum, "Less": np.less,
}  # fmt: skip


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_of_64_bits_wrap(name: str) -> None:
    x, y = (grid.reshape(-1) for grid in np.meshgrid(WIDE, WIDE))
    shape = ("i64", (len(x),))
    proto = model([node(name, ["x", "y"], ["z"])], {"x": shape, "y": shape}, {"z": "bool" if name == "Less" else "i64"})
    with np.errstate(over="ignore"):
        expected = INTEGERS[name](x, y)
    results = mirlo.compile(proto, target="webgpu", cache=False).run({"x": x, "y": y})
    np.testing.assert_array_equal(results["z"], expected)


NUMBERS = {
    "i64": WIDE, "i8": np.arange(-128, 128, 5, np.int8), "u8": np.arange(0, 256, 5, np.uint8),
    "i16": np.arange(-32768, 32768, 3001, np.int16),
}  # fmt: skip


@pytest.mark.parametrize("kind", NUMBERS)
def test_quotients(kind: str) -> None:
    numbers = NUMBERS[kind]
    x, y = (grid.reshape(-1) for grid in np.meshgrid(numbers, numbers))
    kept = (y != 0) & ~((x == np.iinfo(x.dtype).min) & (y.astype(np.int64) == -1))
    x, y = x[kept], y[kept]
    shape = (kind, (len(x),))
    nodes = [node("Div", ["x", "y"], ["q"]), node("Mod", ["x", "y"], ["r"])]
    proto = model(nodes, {"x": shape, "y": shape}, {"q": kind, "r": kind})
    results = mirlo.compile(proto, target="webgpu", cache=False).run({"x": x, "y": y})
    operands = [(int(a), int(b)) for a, b in zip(x, y, strict=True)]
    wide = [abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) for a, b in operands]
    np.testing.assert_array_equal(results["q"], np.array(wide).astype(x.dtype))
    np.testing.assert_array_equal(results["r"], np.mod(x, y))


@pytest.mark.parametrize("kind", ["i8", "u8", "i16", "bool"])
def test_parts_of_words_are_stored(kind: str) -> None:
    """Threads that store parts of one word keep the other parts."""
    dtype = {"i8": np.int8, "u8": np.uint8, "i16": np.int16, "bool": np.bool_}[kind]
    x = RNG.integers(0, 2 if kind == "bool" else 200, 1003).astype(dtype)
    name = "Not" if kind == "bool" else "Neg" if kind != "u8" else "BitwiseNot"
    proto = model([node(name, ["x"], ["y"])], {"x": (kind, x.shape)}, {"y": kind})
    expected = ~x if name != "Neg" else -x
    np.testing.assert_array_equal(mirlo.compile(proto, target="webgpu", cache=False).run({"x": x})["y"], expected)


def test_results_that_are_not_finite() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0, -0.0, 1e-40, 3e38, -1], np.float32)
    nodes = [node("IsNaN", ["x"], ["n"]), node("IsInf", ["x"], ["i"]), node("Max", ["x", "c"], ["m"])]
    proto = model(
        nodes, {"x": ("f32", x.shape)}, {"n": "bool", "i": "bool", "m": "f32"}, {"c": np.array(-np.inf, np.float32)}
    )
    results = mirlo.compile(proto, target="webgpu", cache=False).run({"x": x})
    np.testing.assert_array_equal(results["n"], np.isnan(x))
    np.testing.assert_array_equal(results["i"], np.isinf(x))
    np.testing.assert_array_equal(results["m"], x)


def test_f16() -> None:
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Softmax", ["a"], ["y"])]
    weights = {"w": (floats(40, 24) / 8).astype(np.float16)}
    proto = model(nodes, {"x": ("f16", (5, 40))}, {"y": "f16"}, weights)
    compare(proto, {"x": floats(5, 40).astype(np.float16)}, 2e-3)


@pytest.mark.parametrize(
    ("word", "value", "message"),
    [(4, 1 << 30, "binds memory that it does not have"), (4, -256, "binds memory"), (5, 1 << 30, "binds memory"),
     (1, 1 << 20, "does not run the model: ")],
)  # fmt: skip
def test_damaged_programs_are_errors(word: int, value: int, message: str) -> None:
    compiled = mirlo.compile(model([node("Relu", ["x"], ["y"])], X, {"y": "f32"}), target="webgpu", cache=False)
    (command,) = compiled.artifact.metadata["program"]["commands"]
    command[word] = value
    damaged = Executable(compiled.artifact, ParameterStore())
    with pytest.raises(MirloError, match=message):
        damaged.run({"x": floats(4, 60)})


def test_saved_model_is_loaded(tmp_path: object) -> None:
    proto = model([node("Relu", ["x"], ["y"])], X, {"y": "f32"})
    mirlo.compile(proto, target="webgpu", cache=False).save(f"{tmp_path}/relu.mirlo")
    x = floats(4, 60)
    np.testing.assert_array_equal(mirlo.load(f"{tmp_path}/relu.mirlo").run({"x": x})["y"], np.maximum(x, 0))


def test_sequences_of_products() -> None:
    """Intermediate results share memory, at offsets that every device can bind."""
    names: Sequence[str] = [f"t{i}" for i in range(6)]
    steps = enumerate(zip(["x", *names], [*names, "y"], strict=True))
    nodes = [node("MatMul", [a, f"w{i}"], [b]) for i, (a, b) in steps]
    weights = {f"w{i}": floats(17, 17) / 4 for i in range(len(nodes))}
    compare(model(nodes, {"x": ("f32", (3, 17))}, {"y": "f32"}, weights), {"x": floats(3, 17)})


@pytest.mark.parametrize("name", ["mobilenetv2", "resnet50"])
def test_whole_models(name: str) -> None:
    """Networks of convolutions on small images: a software device takes a minute for large ones."""
    proto = onnx.load(samples.GRAPHS / f"{name}.onnx")
    del proto.graph.value_info[:]
    for dim in proto.graph.input[0].type.tensor_type.shape.dim[2:]:
        dim.dim_value = 64
    shape = [dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim]
    compare(samples.fill_weights(proto), {proto.graph.input[0].name: floats(*shape)}, 1e-4)
