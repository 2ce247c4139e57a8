"""Convolutions as products of shifted planes of pixels: bits, sizes, and models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from mirlo_tensix import simulator
from mirlo_tensix.instructions import FORMATS
from mirlo_tensix.simulator import Work, execute, place
from mirlo_tensix.steps import ConvStep, Numbers, Run, Tensor
from mirlo_tensix.unit import Bits, from_bits, from_tiles, to_bits
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.testing import placement_of

needs_simulator = pytest.mark.skipif(simulator.missing() is not None, reason=f"simulator: {simulator.missing()}")

CASES = [
    ((1, 16, 8, 8), (16, 16, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    ((2, 3, 9, 11), (40, 3, 3, 3), (2, 2), (1, 1, 0, 0), (1, 1)),
    ((1, 40, 7, 7), (16, 40, 1, 1), (2, 2), (0, 0, 0, 0), (1, 1)),
    ((1, 4, 12, 9), (5, 4, 3, 2), (1, 2), (2, 0, 1, 3), (2, 1)),
]
Case = tuple[tuple[int, ...], tuple[int, ...], tuple[int, int], tuple[int, int, int, int], tuple[int, int]]


def step_of(case: Case) -> ConvStep:
    x, weight, strides, pads, dilations = case
    tensors = Tensor("x", False, x), Tensor("w", True, weight), Tensor("b", True, weight[:1])
    return ConvStep("conv", *tensors, "y", strides, pads, dilations, Numbers("bf16", 4), "relu")


def numbers(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    return from_bits(to_bits(np.random.default_rng(seed).standard_normal(shape).astype(np.float32), FORMATS["bf16"]))


def expected(step: ConvStep, x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    above, left, below, right = step.pads
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (above, below), (left, right)))
    height, width, _, _ = step.sizes
    y = np.zeros((len(x), len(weight), height, width)) + bias.reshape(1, -1, 1, 1)
    (down, across), (far, wide) = step.strides, step.dilations
    for i, j in np.ndindex(*weight.shape[2:]):
        rows = slice(i * far, i * far + down * (height - 1) + 1, down)
        columns = slice(j * wide, j * wide + across * (width - 1) + 1, across)
        y += np.einsum("nchw,oc->nohw", x[:, :, rows, columns], weight[:, :, i, j])
    return np.maximum(y, 0)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bits_of_windows_are_a_convolution(case: Case, in_numpy: Run) -> None:
    step = step_of(case)
    x, weight, bias = (numbers(i, shape) for i, shape in enumerate((case[0], case[1], case[1][:1])))
    params = {"w": weight, "b": bias}

    found = step.run({"x": x}, params, step.constants(params), in_numpy)
    want = expected(step, x, weight, bias)
    assert found.shape == want.shape and np.abs(found - want).max() <= 5e-3 * np.abs(want).max()


def test_commands_of_windows_read_within_their_planes() -> None:
    for case in CASES:
        work = step_of(case).product()
        rows = [work.windows.row(row, depth) for row in range(work.m) for depth in range(work.k)]
        assert min(rows) == 0 and 32 * (max(rows) + 32 + work.windows.rows) <= work.tensor_bytes[0]
        assert work.threads(place(work).tensors).busy["matrix"] == work.mvmuls


def model_file(path: Path, channels: int, groups: int = 1) -> Path:
    """Write a residual block of two convolutions."""
    shape = (1, channels, 8, 8)
    weights = [numbers(i, (channels, channels // groups, 3, 3)) / 4 for i in range(2)]
    conv = {"pads": [1, 1, 1, 1], "group": groups}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], name="first", **conv),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Conv", ["b", "w1"], ["c"], name="second", **conv),
        helper.make_node("Add", ["c", "x"], ["d"], name="add"),
        helper.make_node("Relu", ["d"], ["y"], name="last"),
    ]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)] for name in "xy"]
    constants = [numpy_helper.from_array(each, f"w{i}") for i, each in enumerate(weights)]
    graph = helper.make_graph(nodes, "block", *ends, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def test_declined_convolutions_have_a_reason(tmp_path: Path) -> None:
    placed = str(placement_of(model_file(tmp_path / "groups.onnx", 4, 4), "tensix,llvm"))
    assert "would leave most of it idle" in placed


@needs_simulator
@pytest.mark.parametrize("case", CASES[1:], ids=str)
def test_results_have_the_bits_of_the_products_of_windows(case: Case, product_of: Run) -> None:
    step = step_of(case)
    x, weight, bias = (numbers(i, shape) for i, shape in enumerate((case[0], case[1], case[1][:1])))
    params = {"w": weight, "b": bias}

    def run(work: Work, *operands: Bits) -> Bits:
        result, cycles = execute(work, *operands)
        wanted = product_of(work, *operands)
        np.testing.assert_array_equal(from_tiles(result, *wanted.shape), wanted)
        assert cycles.busy["matrix"] == work.mvmuls < cycles.bound
        return result

    step.run({"x": x}, params, step.constants(params), run)


@needs_simulator
def test_a_residual_block_runs_on_the_core(tmp_path: Path) -> None:
    path, x = model_file(tmp_path / "block.onnx", 16), numbers(2, (1, 16, 8, 8))
    unit, cpu = mirlo.compile(path, "tensix,llvm", cache=False), mirlo.compile(path, cache=False)
    found, want = unit(x), cpu(x)
    assert np.abs(found - want).max() <= 1e-2 * np.abs(want).max()
    (steps,) = unit.profile(x, repeats=1).device.values()
    assert [step.name for step in steps] == ["relu", "second", "last"]
