"""Weights of fewer values for `vpmaddubsw`: which are rounded, by how much, and that nothing saturates then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from inner_loops import inner_loops
from onnx import TensorProto, helper, numpy_helper
from presets import runs_code_of

import mirlo
from mirlo.benchmarks.quantized_accuracy import evaluate
from mirlo.driver.code import kernel_listings
from mirlo.driver.request import CompileRequest
from mirlo.passes.targets import CompileOptions
from mirlo.targets.llvm.options import parse_options, planning_options
from mirlo.targets.llvm.pipeline import compile_pipeline
from mirlo.targets.llvm.reduce_range import round_columns
from mirlo.targets.llvm.schedule.contraction.groups import LARGEST_PAIR, are_small_pairs
from mirlo.tools.cli.info import compiled_lines

REDUCED = "llvm{cpu=x86-64-v3 reduce_range=true}"
needs_avx2 = pytest.mark.skipif(not runs_code_of("x86-64-v3"), reason="needs AVX2")


def qdq_model(x: np.ndarray, w: np.ndarray, scale: np.ndarray, zero: np.ndarray, out_scale: float, **conv: Any) -> Any:
    """Return a convolution, or a product with the transposed weights if `conv` is empty, of u8 by quantized weights."""
    constants = {
        "w": w, "s": scale.astype(np.float32), "z": zero, "sx": np.float32(0.02), "zx": np.uint8(7),
        "sy": np.float32(out_scale), "zy": np.uint8(128),
    }  # fmt: skip
    product = helper.make_node("Conv", ["dx", "dw"], ["p"], **conv)
    if not conv:
        product = helper.make_node("Gemm", ["dx", "dw"], ["p"], transB=1)
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "sx", "zx"], ["dx"]),
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["dw"], axis=0),
        product,
        helper.make_node("QuantizeLinear", ["p", "sy", "zy"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "qdq",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def extremes(shape: tuple[int, ...], kind: Any, seed: int = 0) -> np.ndarray:
    """Return elements of which half are the ends of their type."""
    random, info = np.random.default_rng(seed), np.iinfo(kind)
    values = random.integers(info.min, info.max + 1, shape)
    ends = random.choice([info.min, info.max], shape)
    return np.where(random.random(shape) < 0.5, ends, values).astype(kind)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("inner", [0, 1])
def test_no_pair_of_rounded_weights_is_too_large(kind: Any, inner: int) -> None:
    array = np.moveaxis(extremes((9, 16, 2), kind), 1, inner)
    column = 1 - inner
    zero = np.asarray(100 if kind is np.uint8 else -3)
    rounded = round_columns(array, zero, column, inner)
    assert rounded is not None
    codes, factors, error = rounded
    assert codes.dtype == np.int8 and are_small_pairs(codes, inner)
    assert (factors >= 0.25).all() and (factors <= 1).all() and 0 < error < 0.02
    shape = [-1 if axis == column else 1 for axis in range(3)]
    exact = (array.astype(np.float64) - zero) * factors.reshape(shape)
    assert np.abs(codes - exact).max() <= 0.5 + 1e-4


def test_columns_with_small_pairs_keep_their_weights() -> None:
    array = np.array([[-128, 100, 64, 64], [127, 2, 0, 0], [127, 1, -64, -64]], np.int8)
    rounded = round_columns(array, np.zeros((), np.int64), 0, 1)
    assert rounded is not None
    codes, factors, _ = rounded
    assert (codes[[0, 2]] == array[[0, 2]]).all() and (factors[[0, 2]] == 1).all()
    assert codes[1, :2].sum() == LARGEST_PAIR and 0.98 < factors[1] < 1
    assert round_columns(array[[0, 2]], np.zeros((), np.int64), 0, 1) is None
    beyond = round_columns(np.array([[0, 255]], np.uint8), np.asarray(200), 0, 1)
    assert beyond is not None and beyond[0].min() >= -128


CASES: list[tuple[Any, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    (np.int8, (1, 24), (37, 24), {}), (np.uint8, (3, 24), (16, 24), {}), (np.int8, (5, 24), (20, 24), {}),
    (np.uint8, (26, 24), (37, 24), {}), (np.int8, (1, 8, 9, 9), (24, 8, 1, 1), {"strides": [1, 1]}),
    (np.int8, (1, 12, 9, 9), (20, 12, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
]  # fmt: skip


@pytest.mark.sample(2)
@needs_avx2
@pytest.mark.parametrize(("kind", "data", "weight", "conv"), CASES)
def test_results_are_those_of_the_rounded_weights(
    kind: Any, data: tuple[int, ...], weight: tuple[int, ...], conv: dict[str, Any]
) -> None:
    """No product of the largest data saturates: that is what the model computes exactly which has these weights."""
    w, scale = extremes(weight, kind), np.linspace(0.5, 1.5, weight[0])
    w[0] = np.iinfo(kind).max
    zeros = np.full(weight[0], 131 if kind is np.uint8 else 0, kind)
    rounded = round_columns(w, zeros.astype(np.int64).reshape(-1, *[1] * (len(weight) - 1)), 0, 1)
    assert rounded is not None
    codes, factors, _ = rounded
    step = 0.02 * 127 * float(np.sqrt(np.prod(weight[1:])))
    for x in (np.full(data, 255, np.uint8), np.zeros(data, np.uint8), extremes(data, np.uint8, 1)):
        model = mirlo.compile(qdq_model(x, w, scale, zeros, step, **conv), REDUCED, cache=False, jobs=1)
        same = qdq_model(x, codes, scale / factors, np.zeros(weight[0], np.int8), step, **conv)
        assert np.abs(np.asarray(model(x)).astype(int) - evaluate(same, {"x": x})["y"].astype(int)).max() <= 0
        assert any(
            "reduce-range: int8 weights of 1 product" in text for text in model.artifact.metadata["approximations"]
        )


def listing(model: Any, target: str, folder: Path) -> str:
    onnx.save(model, folder / "m.onnx")
    request = CompileRequest(str(folder / "m.onnx"), target=target, cache=False).with_fixed_dims()
    return "\n".join(each.content.decode() for each in kernel_listings(request, "asm", None))


@pytest.mark.sample(0)
def test_code_has_the_saturating_instruction_on_request(tmp_path: Path) -> None:
    """Weights that were quantized so have it without: nothing saturates."""
    x, w = np.zeros((64, 256), np.uint8), extremes((96, 256), np.int8)
    model = qdq_model(x, w, np.ones(96), np.zeros(96, np.int8), 1.0)
    assert "vpmaddubsw" not in listing(model, "llvm{cpu=znver3}", tmp_path)
    text = listing(model, "llvm{cpu=znver3 reduce_range=true}", tmp_path)
    loops = [loop for loop in inner_loops(text) if loop.products >= 8]
    assert loops and all("vpmaddubsw" in "".join(loop.lines) for loop in loops)
    for loop in loops:
        assert not loop.spills and len(loop.lines) <= 2.4 * loop.products
    small = qdq_model(x, (w // 2).astype(np.int8), np.ones(96), np.zeros(96, np.int8), 1.0)
    assert "vpmaddubsw" in listing(small, "llvm{cpu=znver3}", tmp_path)


@pytest.mark.parametrize("cpu", ["alderlake", "znver4", "x86-64-v2"])
def test_other_machines_keep_their_weights(cpu: str, tmp_path: Path) -> None:
    x, w = np.zeros((8, 16), np.uint8), extremes((16, 16), np.int8)
    model = qdq_model(x, w, np.ones(16), np.zeros(16, np.int8), 1.0)
    assert listing(model, f"llvm{{cpu={cpu} reduce_range=true}}", tmp_path) == listing(
        model, f"llvm{{cpu={cpu}}}", tmp_path
    )


def test_convolutions_in_tiles_keep_their_weights(tmp_path: Path) -> None:
    x, w = np.zeros((1, 64, 56, 56), np.uint8), extremes((64, 64, 3, 3), np.int8)
    model = qdq_model(x, w, np.ones(64), np.zeros(64, np.int8), 1.0, pads=[1, 1, 1, 1])
    assert listing(model, "llvm{cpu=znver3 reduce_range=true}", tmp_path) == listing(
        model, "llvm{cpu=znver3}", tmp_path
    )


@needs_avx2
def test_a_compiled_model_tells_what_was_rounded(tmp_path: Path) -> None:
    x, w = np.zeros((8, 16), np.uint8), extremes((16, 16), np.int8)
    model = qdq_model(x, w, np.ones(16), np.zeros(16, np.int8), 1.0)
    mirlo.compile(model, REDUCED, cache=False).save(tmp_path / "m.mirlo")
    assert any(line.startswith("approximated by reduce-range") for line in compiled_lines(str(tmp_path / "m.mirlo")))


def test_the_option_adds_the_pass() -> None:
    assert parse_options("reduce_range=true").reduces_range and planning_options("reduce_range=true") == ""
    text = compile_pipeline(CompileOptions(target_options="reduce_range=true"))
    assert text.replace("reduce-range,", "") == compile_pipeline(CompileOptions(target_options="reduce_range=false"))
    assert compile_pipeline() == compile_pipeline(CompileOptions(target_options="reduce_range=false"))
