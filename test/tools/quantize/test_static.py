"""`mirlo quantize --int8`: accuracy of the int8 models, parts in f32, data, reports, refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from onnx_models import F32, make_model, node

import mirlo
from mirlo.driver.models import open_model
from mirlo.passes.pipeline import Pipeline
from mirlo.runtime.artifact import TensorSpec
from mirlo.tools.cli import main
from mirlo.tools.quantize.data import open_data
from mirlo.tools.quantize.errors import QuantizationError
from mirlo.tools.quantize.network import Network
from mirlo.tools.quantize.operators import ROLES
from mirlo.tools.quantize.options import RANGES, ImageScaling
from mirlo.tools.quantize.prepare import equalize, fold
from mirlo.tools.quantize.ranges import RangeObserver, quantizer_of


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)).astype(np.float32)


def small_network() -> onnx.ModelProto:
    """Return a convolution with a norm, a residual sum of a depthwise one, pools and a classifier."""
    constants = {
        "w": weights(8, 3, 3, 3), "g": np.linspace(0.5, 2, 8, dtype=np.float32), "b": weights(8, seed=1),
        "m": weights(8, seed=2) / 4, "v": np.linspace(0.5, 2, 8, dtype=np.float32), "d": weights(8, 1, 3, 3, seed=3),
        "u": weights(8, 4, seed=4), "c": weights(4, seed=5),
    }  # fmt: skip
    nodes = [
        node("Conv", "x w", "a", name="first", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "a g b m v", "n", name="norm"),
        node("Relu", "n", "r", name="relu"),
        node("Conv", "r d", "e", name="depthwise", pads=[1, 1, 1, 1], group=8),
        node("Add", "r e", "s", name="residual"),
        node("MaxPool", "s", "p", name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", "p", "o", name="mean"),
        node("Flatten", "o", "f", name="flat"),
        node("Gemm", "f u c", "y", name="classifier"),
    ]
    return make_model(nodes, {"x": (F32, ["n", 3, 8, 8])}, ["y"], constants, output_types={"y": (F32, ["n", 4])})


FIXED = 8
"""Rows of models of a fixed batch, which are quantized in half the time."""


def perceptron(batch: str | int = "n") -> onnx.ModelProto:
    constants = {"w": weights(16, 24), "b": weights(24, seed=1), "v": weights(24, 6, seed=2)}
    nodes = [
        node("MatMul", "x w", "a", name="up"), node("Add", "a b", "s", name="bias"),
        node("Relu", "s", "r", name="relu"), node("MatMul", "r v", "y", name="down"),
    ]  # fmt: skip
    return make_model(nodes, {"x": (F32, [batch, 16])}, ["y"], constants)


def images(count: int = 20, seed: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 3, 8, 8)).astype(np.float32)


def rows(count: int = 40, seed: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 16)).astype(np.float32)


def on_onnxruntime(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """Return a result that is computed in f32: in int8, sums of two products saturate on processors without VNNI."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def rms(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.sqrt(np.square(found - expected).mean() / np.square(expected).mean()))


def constants_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def test_a_convolutional_network() -> None:
    model, x = small_network(), images(seed=8)
    found = mirlo.quantize(model, images())
    expected = on_onnxruntime(model, x)
    assert rms(on_onnxruntime(found.model, x), expected) < 0.03
    assert rms(np.asarray(mirlo.compile(found.model, cache=False)(x)), expected) < 0.03
    assert found.report.error < 0.03
    onnx.checker.check_model(found.model)
    report = json.loads(found.report.as_json())
    assert report["error"] == found.report.error and report["nodes"][0]["node"] == "first"
    assert all(each.op_type != "BatchNormalization" for each in found.model.graph.node)
    # Each channel has a scale; biases are i32; data have one scale.
    by_name = constants_of(found.model)
    dequantized = [each for each in found.model.graph.node if each.op_type == "DequantizeLinear"]
    kinds = {str(by_name[each.input[2]].dtype) for each in dequantized}
    assert kinds == {"int8", "int32"}
    stored = {tuple(by_name[each.input[0]].shape): by_name[each.input[1]].shape for each in dequantized if
              each.input[0] in by_name}  # fmt: skip
    assert stored == {(8, 3, 3, 3): (8,), (8,): (8,), (8, 1, 3, 3): (8,), (8, 4): (4,), (4,): (4,)}
    assert {each.node for each in found.report.nodes if each.is_int8} == {
        "first", "relu", "depthwise", "residual", "pool", "mean", "flat", "classifier"
    }  # fmt: skip
    # What moves elements keeps their scale.
    scales = {each.input[0]: each.input[1] for each in found.model.graph.node if each.op_type == "QuantizeLinear"}
    assert scales["p"] == scales["s"]


def test_it_is_computed_in_int8() -> None:
    opened = open_model(mirlo.quantize(perceptron(), rows(), correct_bias=False).model, {})
    Pipeline("builtin.module(simplify)").run(opened.module, opened.session)
    products = re.findall(r"relax.matmul.* : \((.*)\) -> ", opened.module.operation.get_asm(large_elements_limit=1))
    assert [re.findall(r"x(i\d+|f\d+)[,>]", types) for types in products] == [["i8", "i8"], ["i8", "i8"]]


@pytest.mark.parametrize("options", [{"unsigned": True}, {"whole": True}, {"ranges": "entropy"}])
@pytest.mark.sample(0)
def test_forms(options: dict[str, Any]) -> None:
    model, x = perceptron(), rows(seed=8)
    found = mirlo.quantize(model, rows(), **options)
    assert rms(on_onnxruntime(found.model, x), on_onnxruntime(model, x)) < 0.05
    stored = constants_of(found.model)
    zero = next(each.input[2] for each in found.model.graph.node if each.op_type == "QuantizeLinear")
    assert stored[zero].dtype == (np.uint8 if options.get("unsigned") else np.int8)
    assert (found.model.graph.node[-1].op_type == "DequantizeLinear") == bool(options.get("whole"))


@pytest.mark.sample(0)
@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("make", [perceptron, small_network])
def test_integer_inputs_and_outputs(make: Any, unsigned: bool) -> None:
    """The integers are those of the model with f32 inputs and outputs, scaled as the metadata say."""
    data, x = (rows(), rows(seed=8)) if make is perceptron else (images(), images(seed=8))
    options: dict[str, Any] = {"whole": True, "unsigned": unsigned}
    exact = mirlo.quantize(make(), data, **options)
    found = mirlo.quantize(make(), data, integer_io=True, **options).model
    kinds = {value.type.tensor_type.elem_type for value in (*found.graph.input, *found.graph.output)}
    assert kinds == {onnx.TensorProto.UINT8 if unsigned else onnx.TensorProto.INT8}
    assert found.graph.node[0].op_type != "QuantizeLinear" and found.graph.node[-1].op_type != "DequantizeLinear"
    known = {entry.key: float(entry.value) for entry in found.metadata_props}
    limits = np.iinfo(np.uint8 if unsigned else np.int8)
    given = np.clip(np.rint(x / np.float32(known["x.scale"])) + known["x.zero_point"], limits.min, limits.max)
    result = np.asarray(mirlo.compile(found, cache=False)(given.astype(limits.dtype)))
    assert result.dtype == limits.dtype
    wanted = np.asarray(mirlo.compile(exact.model, cache=False)(x))
    dequantized = (result.astype(np.float32) - np.float32(known["y.zero_point"])) * np.float32(known["y.scale"])
    np.testing.assert_allclose(dequantized, wanted, rtol=1e-6, atol=1e-6)
    assert on_onnxruntime(found, given.astype(limits.dtype)).dtype == limits.dtype


@pytest.mark.sample(0)
def test_what_is_not_quantized_stays_as_it_is() -> None:
    """The first node is kept in f32, and the outputs are where the model is not int8 as a whole."""
    found = mirlo.quantize(perceptron(), rows(), integer_io=True, keep=["up"]).model
    assert found.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT and not found.metadata_props
    assert mirlo.compile(found, cache=False)(rows()).dtype == np.float32


@pytest.mark.sample(0)
def test_biases_take_up_mean_errors() -> None:
    """Weights that all round the same way shift the channels; the bias of the convolution takes that up."""
    w = np.full((4, 3, 3, 3), 0.1004, np.float32)
    w[:, 0, 0, 0] = 1.0
    model = make_model([node("Conv", "x w", "y", name="conv")], {"x": (F32, ["n", 3, 8, 8])}, ["y"], {"w": w})
    x = np.abs(images()) + 1
    expected = on_onnxruntime(model, x)
    errors = [
        np.abs((on_onnxruntime(mirlo.quantize(model, x, correct_bias=c).model, x) - expected).mean((0, 2, 3))).max()
        for c in (True, False)
    ]
    assert errors[0] < 0.2 * errors[1]


@pytest.mark.sample(0)
def test_equalized_channels() -> None:
    """A network whose channels differ by a factor of 100 computes the same, and is more exact in int8."""
    model = make_model(
        [
            node("Conv", "x w b", "a", name="first"), node("Relu", "a", "r", name="relu"),
            node("GlobalAveragePool", "r", "p", name="pool"), node("Flatten", "p", "f", name="flat"),
            node("Gemm", "f v", "y", name="second", transB=1),
        ],
        {"x": (F32, ["n", 3, 8, 8])},
        ["y"],
        {
            "w": weights(8, 3, 3, 3) * np.logspace(0, 2, 8, dtype=np.float32).reshape(-1, 1, 1, 1),
            "b": weights(8, seed=1),
            "v": weights(4, 8, seed=2) / np.logspace(0, 2, 8, dtype=np.float32),
        },
    )  # fmt: skip
    x = images()
    network = Network.of(model)
    fold(network)
    values = onnx.shape_inference.infer_shapes(model)
    values.graph.output.extend([onnx.helper.make_tensor_value_info("f", F32, None)])
    session = onnxruntime.InferenceSession(values.SerializeToString(), providers=["CPUExecutionProvider"])
    expected, data = session.run(None, {"x": x})
    divided = equalize(network, {"f": np.abs(data).max(0)})
    assert set(divided) == {"a", "r", "p", "f"}
    np.testing.assert_allclose(
        on_onnxruntime(network.message(network.nodes), x), expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max()
    )
    plain, equal = (mirlo.quantize(model, x, equalize=each, ranges="minmax").report.error for each in (False, True))
    assert equal < 0.7 * plain


@pytest.mark.sample(0)
def test_a_budget_keeps_sensitive_nodes() -> None:
    plain = mirlo.quantize(perceptron(FIXED), rows()).report
    effects = {each.node: each.effect for each in plain.nodes if each.effect}
    budget = (max(effects.values()) + min(effects.values())) / 2  # one of the two products alone keeps it
    found = mirlo.quantize(perceptron(FIXED), rows(), max_error=budget)
    assert min(effects.values()) < budget < plain.error and found.report.error <= budget
    kept = [each.node for each in found.report.nodes if each.why == "max_error" and each.operator == "MatMul"]
    assert kept == [max(effects, key=effects.__getitem__)]
    nothing = mirlo.quantize(perceptron(FIXED), rows(), max_error=1e-9).report
    assert nothing.int8_nodes == 0 and nothing.error <= 1e-6


def test_excluded_nodes() -> None:
    found = mirlo.quantize(perceptron(FIXED), rows(), keep=("down",))
    assert {each.node: each.why for each in found.report.nodes}["down"] == "excluded"
    with pytest.raises(QuantizationError, match="no node and no operator 'dwon'.*'down'"):
        mirlo.quantize(perceptron(FIXED), rows(), keep=("dwon",))
    with pytest.raises(QuantizationError, match="no node to quantize: expected a product"):
        mirlo.quantize(perceptron(FIXED), rows(), keep=("MatMul",))


def test_older_models_and_constants_of_nodes() -> None:
    w = numpy_helper.from_array(weights(16, 4), "")
    nodes = [node("Constant", "", "w", value=w), node("Identity", "x", "i"), node("MatMul", "i w", "y", name="product")]
    declared = {"y": (F32, [2, 4])}
    model = make_model(nodes, {"x": (F32, [2, 16])}, ["y"], {}, opset=9, output_types=declared)
    found = mirlo.quantize(model, rows())
    assert found.report.int8_nodes == 1 and found.report.samples == 40
    assert rms(on_onnxruntime(found.model, rows(2)), on_onnxruntime(model, rows(2))) < 0.03


def test_ranges() -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal(20000).astype(np.float32)
    x[0] = 40
    observer = RangeObserver()
    observer.see_limits(x, by_channel=False)
    observer.count(x)
    errors = {}
    for method in RANGES:
        low, high = observer.range(method, 99.9)
        found = quantizer_of(low, high)
        back = (found.stored(x).astype(np.float32) - found.zero) * found.scale
        errors[method] = float(np.square(back - x).mean())
        assert (back[x == 0] == 0).all()
        assert (high == pytest.approx(40)) == (method == "minmax")
    assert min(errors, key=errors.__getitem__) in ("mse", "minmax")
    assert errors["mse"] <= 1.05 * min(errors.values())
    for limits in ((0.0, 0.0), (1e-45, 1e-45), (-3.0, -1.0), (2.0, 5.0)):
        found = quantizer_of(*limits)
        assert found.stored(np.zeros(1, np.float32))[0] == found.zero
        assert np.isfinite(found.scale) and found.scale > 0


def test_each_role_is_of_an_operator() -> None:
    names = {schema.name for schema in onnx.defs.get_all_schemas()}
    assert set(ROLES) <= names


IMAGE = TensorSpec("x", "f32", ("n", 3, 8, 8))


def test_data(tmp_path: Path) -> None:
    from PIL import Image

    x = images(20)
    np.savez(tmp_path / "x.npz", x)
    (tmp_path / "arrays").mkdir()
    (tmp_path / "pictures").mkdir()
    for i, each in enumerate(x[:4]):
        np.save(tmp_path / "arrays" / f"{i}.npy", each)
        picture = Image.fromarray((np.clip(each, 0, 1) * 255).astype(np.uint8).transpose(1, 2, 0))
        picture.resize((20, 12)).save(tmp_path / "pictures" / f"{i}.png")
    (tmp_path / "own.py").write_text(
        f"import numpy as np\ndef calls():\n    for each in np.load({str(tmp_path / 'x.npz')!r})['arr_0'][:4]:\n"
        "        yield {'x': each[None]}\n"
    )
    for given in (tmp_path / "arrays", f"{tmp_path / 'own.py'}:calls", [(each[None],) for each in x[:4]]):
        data = open_data(given, [IMAGE])
        for _ in range(2):
            np.testing.assert_array_equal(np.concatenate([feeds["x"] for feeds in data]), x[:4])
        assert len(list(open_data(given, [IMAGE], limit=3))) == 3
    for given in (tmp_path / "x.npz", x, {"x": x, "other": x}):
        assert [len(feeds["x"]) for feeds in open_data(given, [IMAGE])] == [16, 4]
    fixed = TensorSpec("x", "f32", (6, 3, 8, 8))
    assert [len(feeds["x"]) for feeds in open_data(x, [fixed])] == [6, 6, 6]
    plain = [feeds["x"] for feeds in open_data(tmp_path / "pictures", [IMAGE])]
    assert {each.shape for each in plain} == {(1, 3, 8, 8)} and 0 <= plain[0].min() < plain[0].max() <= 1
    scaling = ImageScaling((0.5, 0.25, 0.0), (0.5,))
    last = TensorSpec("x", "f32", (1, 8, 8, 3))
    scaled = [feeds["x"] for feeds in open_data(tmp_path / "pictures", [last], images=scaling)]
    expected = (plain[0].transpose(0, 2, 3, 1) - np.float32([0.5, 0.25, 0])) * 2
    np.testing.assert_allclose(scaled[0], expected, atol=1e-6)


def test_data_that_do_not_fit(tmp_path: Path) -> None:
    def problem(data: Any, *specs: TensorSpec) -> str:
        with pytest.raises(QuantizationError) as caught:
            list(open_data(data, specs or [TensorSpec("x", "f32", ("n", 16))]))
        return str(caught.value)

    ones = np.ones((3, 16), np.float32)
    assert "expected x: f32[n, 16], found an array of shape [3, 15]" in problem(np.ones((3, 15), np.float32))
    assert "input 'x' has values that are not finite" in problem(np.full((3, 16), np.nan, np.float32))
    assert "no array for input 'x'; found 'y'" in problem({"y": ones})
    assert "expected numbers, found" in problem(np.full((2, 16), "a"))
    assert "0 samples" in problem(np.ones((0, 16), np.float32))
    assert "3 samples, expected at least 4" in problem(ones, TensorSpec("x", "f32", (4, 16)))
    assert "expected the inputs of calls" in problem(lambda: 5)
    assert "call 0: 2 arrays for 1 inputs" in problem([(ones, ones)])
    pair = (TensorSpec("x", "f32", ("n", 16)), TensorSpec("y", "f32", ("n", 16)))
    assert "different numbers of samples: 'x' 3, 'y' 2" in problem({"x": ones, "y": ones[:2]}, *pair)
    assert "a folder is data of one input, the model has 2 (x, y)" in problem(_folder(tmp_path), *pair)
    assert "does not exist; expected an .npz file" in problem(str(tmp_path / "none.npz"))
    (tmp_path / "x.npz").write_bytes(b"PK\3\4 no archive")
    assert "x.npz' is not a file that numpy.savez wrote" in problem(tmp_path / "x.npz")
    np.savez(tmp_path / "o.npz", x=np.array([{}], object))
    assert "o.npz' is not a file that numpy.savez wrote" in problem(tmp_path / "o.npz")
    np.savez(tmp_path / "o.npz", y=ones, z=ones)
    assert "no array for input 'x'; found 'y', 'z'" in problem(tmp_path / "o.npz")
    (tmp_path / "empty").mkdir()
    assert "the folder has no images and no .npy files" in problem(tmp_path / "empty")
    assert "a.npy' is not an array that numpy.save wrote" in problem(_folder(tmp_path))
    (tmp_path / "folder" / "a.npy").rename(tmp_path / "folder" / "a.png")
    assert "a.png': images need an input of 4 dims" in problem(tmp_path / "folder")
    assert "a.png' is not an image" in problem(tmp_path / "folder", IMAGE)
    (tmp_path / "bad.py").write_text("1 / 0\n")
    assert "bad.py' cannot be imported: ZeroDivisionError" in problem(f"{tmp_path / 'bad.py'}:calls")
    (tmp_path / "bad.py").write_text("def calls():\n    raise KeyError('k')\n")
    assert "bad.py': calls() fails: KeyError" in problem(f"{tmp_path / 'bad.py'}:calls")
    assert "has no function 'other'" in problem(f"{tmp_path / 'bad.py'}:other")


def _folder(tmp_path: Path) -> Path:
    """Return a folder of one damaged array."""
    (tmp_path / "folder").mkdir(exist_ok=True)
    (tmp_path / "folder" / "a.npy").write_bytes(b"\x93NUMPY\1\0\xff\xff")
    return tmp_path / "folder"


def test_models_and_options_that_do_not_fit() -> None:
    model = perceptron()
    model.graph.initializer[0].raw_data = np.full((16, 24), np.inf, np.float32).tobytes()
    with pytest.raises(QuantizationError, match="'w' has values that are not finite"):
        mirlo.quantize(model, rows())
    for options in ({"ranges": "best"}, {"percentile": 3.0}, {"max_error": -1.0}, {"samples": 0}):
        with pytest.raises(QuantizationError, match=f"^{next(iter(options))}: expected"):
            mirlo.quantize(perceptron(), rows(), **options)
    with pytest.raises(QuantizationError, match="no option 'range'.*'ranges'"):
        mirlo.quantize(perceptron(), rows(), range="mse")


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "m.onnx", tmp_path / "q.onnx"
    onnx.save(perceptron(FIXED), source)
    np.savez(tmp_path / "x.npz", x=rows())
    command = ["quantize", str(source), "-o", str(target), "--int8", "--calibrate", str(tmp_path / "x.npz"), "-v"]
    assert main([*command, "--keep", "up"]) == 0
    said = capsys.readouterr()
    assert "relative RMS error" in said.out and "excluded" in said.out and "ranges of 40 samples" in said.err
    assert rms(on_onnxruntime(onnx.load(target), rows(FIXED)), on_onnxruntime(perceptron(FIXED), rows(FIXED))) < 0.03
    assert main([*command, "--report", str(tmp_path / "r.html")]) == 0
    assert "class='bar'" in (tmp_path / "r.html").read_text()
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[:2] == [f"wrote {target}", f"wrote {tmp_path / 'r.html'}"] and lines[2] == "4 of 4 nodes int8, 40 samples"
    )
    for flags, text in (
        (["--bits", "4"], "--bits is for weights of a few bits"),
        (["-o", str(source)], "is the model itself"),
        (["--ranges", "percentile", "--percentile", "10"], "percentile: expected"),
    ):
        assert main([*command, *flags]) == 1
        assert text in capsys.readouterr().err
    assert main(["quantize", str(source), "--int8"]) == 1
    assert "--int8 needs data" in capsys.readouterr().err
    assert main(["quantize", str(source), "--calibrate", "x.npz"]) == 1
    assert "--calibrate is for '--int8" in capsys.readouterr().err
