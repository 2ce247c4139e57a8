"""`mirlo quantize`: errors of the weights, written models, refusals."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_models import F32, make_model, node

import mirlo
from mirlo.tools.cli import main
from mirlo.tools.quantize.errors import QuantizationError
from mirlo.tools.quantize.nbits import quantize_model, quantize_weights
from mirlo.tools.quantize.options import Quantization


def dequantized(weights: np.ndarray, how: Quantization) -> np.ndarray:
    """Return what ONNX Runtime multiplies with: the product of the identity and the quantized weights."""
    rows, columns = weights.shape
    model = make_model([node("MatMul", "x w", "y")], {"x": (F32, ["m", rows])}, ["y"], {"w": weights})
    assert quantize_model(model, how) == 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": np.eye(rows, dtype=np.float32)})[0])


@pytest.mark.parametrize("bits, block, symmetric", [*product((2, 4, 8), (16, 64), (False, True))])
def test_error_is_half_a_step(bits: int, block: int, symmetric: bool) -> None:
    weights = np.random.default_rng(0).standard_normal((80, 24)).astype(np.float32)
    how = Quantization(bits, block, symmetric=symmetric, activations="exact")
    found = quantize_weights(weights, how)
    step = np.repeat(np.abs(found.scales).T, block, axis=0)[: len(weights)]
    # One code beyond the largest is missing on one side; a zero point is rounded, too.
    assert (np.abs(dequantized(weights, how) - weights) <= step * 1.01 + 1e-6).all()
    assert np.mean(np.abs(dequantized(weights, how) - weights) <= step * 0.501 + 1e-6) > 0.9


@pytest.mark.parametrize("bits, symmetric", [*product((2, 4), (False, True))])
def test_search_is_better(bits: int, symmetric: bool) -> None:
    weights = np.random.default_rng(1).standard_normal((256, 32)).astype(np.float32)
    errors = [
        np.square(dequantized(weights, Quantization(bits, 32, method, symmetric, "exact")) - weights).mean()
        for method in ("rtn", "k_quant")
    ]
    assert errors[1] < 0.99 * errors[0]


@pytest.mark.parametrize("method", ("rtn", "k_quant"))
def test_zeros_stay_zero(method: str) -> None:
    weights = np.zeros((64, 8), np.float32)
    weights[40, 3] = -2
    for symmetric in (False, True):
        found = dequantized(weights, Quantization(4, 32, method, symmetric, "exact"))
        np.testing.assert_allclose(found, weights, atol=1e-6)


@pytest.mark.sample(0)
def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(2)
    weights = {"w": random.standard_normal((64, 48)).astype(np.float32), "v": random.standard_normal((48, 8))}
    weights["v"] = weights["v"].astype(np.float32)
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "b"), node("MatMul", "b v", "y")]
    source, target = tmp_path / "m.onnx", tmp_path / "q.onnx"
    onnx.save(make_model(nodes, {"x": (F32, ["m", 64])}, ["y"], weights), source)
    assert main(["quantize", str(source), "-o", str(target), "--bits", "8", "--activations", "exact"]) == 0
    assert "2 products with weights of 8 bits" in capsys.readouterr().out
    x = random.standard_normal((3, 64)).astype(np.float32)
    wanted = mirlo.compile(str(source), cache=False)(x)
    found = mirlo.compile(str(target), cache=False)(x)
    assert np.abs(found - wanted).max() < 0.02 * np.abs(wanted).max()
    assert {tensor.name for tensor in onnx.load(target).graph.initializer}.isdisjoint({"w", "v"})


def test_refused(tmp_path: Path) -> None:
    for given in ({"bits": 3}, {"block": 24}, {"method": "hqq"}, {"activations": "f8"}):
        with pytest.raises(QuantizationError, match=f"^{next(iter(given))}: expected"):
            Quantization(**given)
    model = make_model([node("Relu", "x", "y")], {"x": (F32, [2])}, ["y"], {})
    with pytest.raises(QuantizationError, match="no product to quantize"):
        quantize_model(model, Quantization())
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    assert main(["quantize", str(path), "-o", str(path)]) == 1


def test_files_that_are_damaged_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = make_model([node("MatMul", "x w", "y")], {"x": (F32, [1, 32])}, ["y"], {"w": np.ones((32, 4), np.float32)})

    def problem(content: bytes) -> str:
        (tmp_path / "m.onnx").write_bytes(content)
        assert main(["quantize", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "q.onnx")]) == 1
        return capsys.readouterr().err

    assert "m.onnx: not an ONNX model (9 bytes that are no protobuf message)" in problem(b"\xff" * 9)
    assert "m.onnx: not an ONNX model but a GGUF file" in problem(b"GGUF\3\0\0\0")
    weight = model.graph.initializer[0]
    weight.raw_data = weight.raw_data[:-1]
    assert "]: tensor 'w' cannot be read: " in problem(model.SerializeToString())
    weight.raw_data = np.full((32, 4), np.nan, np.float32).tobytes()
    assert "tensor 'w' has values that are not finite" in problem(model.SerializeToString())
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="/etc/passwd")
    assert "not an ONNX model, or a damaged one: Location of external" in problem(model.SerializeToString())
    del model.graph.node[0].input[1], model.graph.initializer[0]
    assert "no product to quantize" in problem(model.SerializeToString())
