"""Convolutions as products of shifted planes of pixels: bits, sizes, and models."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
from mirlo_tensix import loader, region, simulator
from mirlo_tensix.instructions import FORMATS
from mirlo_tensix.products import Planes, Product
from mirlo_tensix.simulator import execute
from mirlo_tensix.unit import to_bits
from model import bits_of
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.testing import placement_of

needs_simulator = pytest.mark.skipif(simulator.missing() is not None, reason=f"simulator: {simulator.missing()}")

CASES = [
    ((1, 40, 6, 7), (40, 1, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    ((2, 96, 9, 8), (192, 16, 3, 2), (2, 1), (1, 0, 1, 1), (1, 1)),
    ((1, 12, 5, 9), (72, 6, 1, 3), (1, 2), (0, 2, 0, 1), (1, 2)),
    ((1, 16, 8, 8), (16, 16, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    ((2, 3, 9, 11), (40, 3, 3, 3), (2, 2), (1, 1, 0, 0), (1, 1)),
    ((1, 40, 7, 7), (16, 40, 1, 1), (2, 2), (0, 0, 0, 0), (1, 1)),
    ((1, 4, 12, 9), (5, 4, 3, 2), (1, 2), (2, 0, 1, 3), (2, 1)),
]
Array, Shape = np.ndarray, tuple[int, ...]
Case = tuple[tuple[int, ...], tuple[int, ...], tuple[int, int], tuple[int, int, int, int], tuple[int, int]]


def conv_file(path: Path, case: Case) -> Path:
    """Write a convolution, in groups where its weights have fewer channels, with a bias and ReLU, and one of 1 x 1."""
    x, weight, strides, pads, dilations = case
    attributes = {"strides": strides, "pads": pads, "dilations": dilations, "group": x[1] // weight[1]}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["h"], name="first", **attributes),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("Conv", ["r", "v"], ["y"], name="second"),
    ]
    constants = {"w": numbers(1, weight), "b": numbers(2, weight[:1]), "v": numbers(3, (9, weight[0], 1, 1))}
    return save(path, nodes, (x, None), constants)


def save(path: Path, nodes: list[onnx.NodeProto], shapes: Sequence[Shape | None], constants: dict[str, Array]) -> Path:
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
        for name, shape in zip("xy", shapes, strict=True)
    ]
    weights = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "layers", *ends, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def numbers(seed: int, shape: Shape) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.usefixtures("unit_in_numpy")
@pytest.mark.parametrize(
    ("case", "dtype"),
    [*((case, "bf16") for case in CASES), *product(CASES[:2], ("fp16", "tf32"))],
    ids=str,
)
def test_bits_of_windows_are_a_convolution(case: Case, dtype: str, tmp_path: Path) -> None:
    path, x = conv_file(tmp_path / "conv.onnx", case), numbers(0, case[0])
    unit = mirlo.compile(path, f"tensix{{phases=4 dtype={dtype}}},llvm", cache=False)
    found, want = unit(x), mirlo.compile(path, cache=False)(x)
    assert found.shape == want.shape and np.abs(found - want).max() <= 1e-2 * np.abs(want).max()
    (steps,) = unit.profile(x, repeats=1).device.values()
    assert [step.name for step in steps] == ["relu", "second"]


@pytest.mark.usefixtures("unit_in_numpy")
@pytest.mark.parametrize(
    ("case", "tiles"),
    [
        (((1, 40, 5, 5), (72, 40, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1)), 60),
        pytest.param(((2, 40, 21, 9), (36, 40, 3, 3), (2, 1), (1, 1, 1, 1), (1, 1)), 36, marks=pytest.mark.nightly),
        (((1, 72, 21, 9), (72, 1, 3, 2), (2, 2), (0, 1, 1, 1), (1, 1)), 32),
    ],
    ids=("weights", "pixels", "pixels in groups"),
)
def test_bits_of_a_convolution_that_has_no_room_at_once(
    case: Case, tiles: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, x = conv_file(tmp_path / "conv.onnx", case), numbers(0, case[0])
    whole = mirlo.compile(path, "tensix,llvm", cache=False)(x)
    monkeypatch.setattr(region, "L1_TENSORS", tiles * 2048)
    monkeypatch.setattr(region, "PROGRAMS", region.FIRST + tiles * 2048)
    parts = mirlo.compile(path, "tensix,llvm", cache=False)
    np.testing.assert_array_equal(parts(x), whole)
    (external,) = parts.artifact.externals
    assert external.data.count(b'"is": "Run"') > 2


def model_file(path: Path, channels: int) -> Path:
    """Write a residual block of two convolutions."""
    shape = (1, channels, 8, 8)
    weights = [numbers(i, (channels, channels, 3, 3)) / 4 for i in range(2)]
    conv = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], name="first", **conv),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Conv", ["b", "w1"], ["c"], name="second", **conv),
        helper.make_node("Add", ["c", "x"], ["d"], name="add"),
        helper.make_node("Relu", ["d"], ["y"], name="last"),
    ]
    return save(path, nodes, (shape, shape), {f"w{i}": each for i, each in enumerate(weights)})


def test_declined_convolutions_have_a_reason(tmp_path: Path) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    path = save(tmp_path / "row.onnx", [node], ((1, 4, 9), None), {"w": numbers(0, (4, 4, 3))})
    assert "images must be NCHW" in str(placement_of(path, "tensix,llvm"))


@needs_simulator
@pytest.mark.nightly
@pytest.mark.parametrize("case", CASES, ids=str)
def test_results_of_windows_have_the_bits_of_the_unit(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numpy_machine: type
) -> None:
    unit = mirlo.compile(conv_file(tmp_path / "conv.onnx", case), "tensix,llvm", cache=False)
    found = unit(x := numbers(0, case[0]))
    monkeypatch.setattr(loader, "Machine", numpy_machine)
    np.testing.assert_array_equal(found, unit(x))


@needs_simulator
@pytest.mark.parametrize(("size", "activation"), [((3, 2), None), ((5, 1), "relu")])
def test_what_is_no_pixel_becomes_zero(size: tuple[int, int], activation: str | None) -> None:
    m, n = size
    end = 32 * m - 12  # the pixels of a row of 8, two after each row, and some around all of them
    y = Planes(32 * m + 22, 11, ((0, 11, 0, 1), (19, 2, 10, end // 10), (end, 32 * m + 22 - end, 0, 1)))
    work = Product(m, n, 2, 1, activation, windows=((0, 0), (0, 3)), x=Planes(32 * m + 3), y=y)
    operands = [to_bits(numbers(i, (bytes_ // 2,)), FORMATS["bf16"]) for i, bytes_ in enumerate(work.tensor_bytes[:2])]
    found, expected = execute(work, *operands)[0], bits_of(work, *operands)
    np.testing.assert_array_equal(found[: expected.size], expected)


@needs_simulator
@pytest.mark.nightly
def test_a_residual_block_stays_in_l1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numpy_machine: type) -> None:
    path, x = model_file(tmp_path / "block.onnx", 16), numbers(2, (1, 16, 8, 8))
    unit, cpu = mirlo.compile(path, "tensix,llvm", cache=False), mirlo.compile(path, cache=False)
    found, want = unit(x), cpu(x)
    assert np.abs(found - want).max() <= 1e-2 * np.abs(want).max()
    (steps,) = unit.profile(x, repeats=1).device.values()
    assert [step.name for step in steps] == ["relu", "second", "last"]
    monkeypatch.setattr(loader, "Machine", numpy_machine)
    np.testing.assert_array_equal(found, unit(x))
