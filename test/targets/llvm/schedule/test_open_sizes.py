"""The schedules of the CPU over sizes that are known at run time only: tails of rows, columns, sums and vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from onnx_models import F32, make_model, node

import mirlo

F16 = TensorProto.FLOAT16
RNG = np.random.default_rng(0)
PAIRS = [(b, s) for b in (1, 3) for s in (1, 5, 16, 17, 31, 32, 33, 70)]
TRIPLES = [(1, 1, 1), (5, 7, 3), (33, 20, 50), (64, 64, 64), (3, 0, 4), (17, 64, 129), (2, 300, 1), (40, 1, 40)]


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    raised = np.exp(x - x.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


W, B, G = normal(128, 96), normal(96), normal(70)


def layer_norm(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * G + G


@dataclass
class Case:
    nodes: list[Any]
    inputs: dict[str, tuple[Any, ...]]
    sizes: Sequence[tuple[int, ...]]
    expected: Callable[..., np.ndarray]
    symbols: Sequence[str]
    constants: dict[str, Any] = field(default_factory=dict)


CASES = {
    "scores": Case(
        [node("Transpose", "k", "t", perm=[0, 2, 1]), node("MatMul", "q t", "s"), node("Softmax", "s", "y", axis=-1)],
        {"q": ("b", "s", 64), "k": ("b", "s", 64)}, PAIRS,
        lambda q, k: softmax(q @ k.transpose(0, 2, 1)), "bs",
    ),
    "dynamic sum": Case(
        [node("MatMul", "p v", "y")], {"p": ("b", "s", "s"), "v": ("b", "s", 64)}, PAIRS, lambda p, v: p @ v, "bs"
    ),
    "rows": Case(
        [node("MatMul", "x w", "a"), node("Add", "a c", "d"), node("Relu", "d", "y")],
        {"x": ("b", "s", 128)}, [*PAIRS, (0, 3)], lambda x: np.maximum(x @ W + B, 0), "bs", {"w": W, "c": B},
    ),
    "everything": Case(
        [node("MatMul", "x w", "y")], {"x": ("m", "k"), "w": ("k", "n")}, TRIPLES, lambda x, w: x @ w, "mkn"
    ),
    "columns transposed": Case(
        [node("Transpose", "w", "t", perm=[1, 0]), node("MatMul", "x t", "y")],
        {"x": ("m", "k"), "w": ("n", "k")}, TRIPLES, lambda x, w: x @ w.T, "mkn",
    ),
    "rows transposed": Case(
        [node("Transpose", "x", "t", perm=[1, 0]), node("MatMul", "t w", "y")],
        {"x": ("k", "m"), "w": ("k", "n")}, TRIPLES, lambda x, w: x.T @ w, "mkn",
    ),
    "layer norm": Case(
        [node("LayerNormalization", "x g g", "y", axis=-1)], {"x": ("b", "s", 70)}, PAIRS, layer_norm, "bs", {"g": G}
    ),
    "middle dim": Case(
        [node("ReduceMean", "x a", "y", keepdims=0)], {"x": ("b", "s", "t")}, [(2, 5, 7), (1, 40, 33)],
        lambda x: x.mean(1), "bst", {"a": np.array([1])},
    ),
    "heads": Case(
        [node("Transpose", "x", "y", perm=[0, 2, 1, 3])], {"x": ("b", "s", 4, 8)}, PAIRS,
        lambda x: x.transpose(0, 2, 1, 3), "bs",
    ),
    "matrix": Case([node("Transpose", "x", "y", perm=[1, 0])], {"x": ("b", "s")}, PAIRS, lambda x: x.T, "bs"),
    "joined": Case(
        [node("Concat", "x z", "y", axis=1)], {"x": ("b", "s"), "z": ("b", "t")}, [(2, 5, 7), (1, 40, 33), (3, 0, 5)],
        lambda x, z: np.concatenate([x, z], 1), "bst",
    ),
}  # fmt: skip


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", CASES)
def test_sizes(name: str) -> None:
    case = CASES[name]
    inputs = {key: (F32, shape) for key, shape in case.inputs.items()}
    f = mirlo.compile(make_model(case.nodes, inputs, ["y"], case.constants))
    for sizes in case.sizes:
        dims = dict(zip(case.symbols, sizes, strict=True))
        arrays = [normal(*(dims.get(dim, dim) for dim in shape)) for shape in case.inputs.values()]
        expected = case.expected(*arrays)
        found = f(*arrays)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4, err_msg=str(sizes))


@pytest.mark.sample(0)
@pytest.mark.parametrize("has_epilogue", [False, True])
def test_every_number_of_rows(has_epilogue: bool) -> None:
    """What whole tiles leave is covered by tiles of all sizes, on one thread and on two, which share an epilogue."""
    x = normal(61, 128)
    nodes = [node("MatMul", "x w", "s"), node("Tanh", "s", "y")] if has_epilogue else [node("MatMul", "x w", "y")]
    model = make_model(nodes, {"x": (F32, ("n", 128))}, ["y"], {"w": W})
    compiled = [mirlo.compile(model, threads=threads) for threads in (1, 2)]
    expected = np.tanh(x @ W) if has_epilogue else x @ W
    for rows in range(len(x)):
        for f in compiled:
            np.testing.assert_allclose(f(x[:rows]), expected[:rows], rtol=2e-4, atol=2e-4, err_msg=str(rows))


def test_every_width_of_images() -> None:
    """Tiles of the columns of an image, of which convolutions have fewer sizes."""
    weights = normal(40, 8, 1, 3)
    model = make_model(
        [node("Conv", "x w", "y", kernel_shape=[1, 3], pads=[0, 1, 0, 1])], {"x": (F32, (1, 8, "h", "n"))}, ["y"],
        {"w": weights},
    )  # fmt: skip
    compiled = [mirlo.compile(model, threads=threads) for threads in (1, 2)]
    for width in range(1, 40):
        x = normal(1, 8, 2, width)
        taps = np.pad(x, ((0, 0), (0, 0), (0, 0), (1, 1)))
        expected = sum(np.einsum("oc,bchw->bohw", weights[:, :, 0, t], taps[..., t : t + width]) for t in range(3))
        for f in compiled:
            np.testing.assert_allclose(f(x), expected, rtol=2e-4, atol=2e-4, err_msg=str(width))


def test_every_length() -> None:
    """Vectors of all sizes, in a row, in sums along a row, and in sums of what comes before."""
    nodes = [node("Exp", "x", "e"), node("Softmax", "e", "s", axis=-1), node("CumSum", "s a", "y")]
    model = make_model(nodes, {"x": (F32, (3, "n"))}, ["e", "s", "y"], {"a": np.array(1)})
    compiled = mirlo.compile(model)
    for length in range(140):
        x = normal(3, length)
        raised = np.exp(x)
        soft = softmax(raised) if length else raised
        for found, expected in zip(compiled(x), (raised, soft, soft.cumsum(1)), strict=True):
            np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4, err_msg=str(length))


@pytest.mark.parametrize("name", ["rows", "scores"])
def test_on_threads(name: str) -> None:
    case = CASES[name]
    inputs = {key: (F32, shape) for key, shape in case.inputs.items()}
    model = make_model(case.nodes, inputs, ["y"], case.constants)
    one, two = mirlo.compile(model), mirlo.compile(model, threads=2)
    for sizes in ((2, 200), (1, 3)):
        dims = dict(zip(case.symbols, sizes, strict=True))
        arrays = [normal(*(dims.get(dim, dim) for dim in shape)) for shape in case.inputs.values()]
        np.testing.assert_allclose(one(*arrays), two(*arrays), rtol=1e-5, atol=1e-5)


HALF = (W / 8).astype(np.float16)


def test_rows_of_half_floats() -> None:
    """Rows of any number are widened once, and not for each panel of columns."""
    compiled = mirlo.compile(make_model([node("MatMul", "x w", "y")], {"x": (F16, ("n", 128))}, ["y"], {"w": HALF}))
    for rows in (0, 1, 13, 14, 40):
        x = normal(rows, 128).astype(np.float16)
        wanted = x.astype(np.float32) @ HALF.astype(np.float32)
        np.testing.assert_allclose(compiled(x).astype(np.float32), wanted, rtol=2e-3, atol=2e-3, err_msg=str(rows))


@pytest.mark.parametrize("signed", [True, False])
def test_rows_of_bytes(signed: bool) -> None:
    kind = np.int8 if signed else np.uint8
    weights = RNG.integers(-128, 128, (70, 48)).astype(np.int8)
    model = make_model(
        [node("MatMulInteger", "x w", "y")], {"x": (TensorProto.INT8 if signed else TensorProto.UINT8, ("n", 70))},
        ["y"], {"w": weights},
    )  # fmt: skip
    compiled = mirlo.compile(model)
    for rows in (0, 1, 13, 14, 40):
        x = RNG.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, (rows, 70)).astype(kind)
        np.testing.assert_array_equal(compiled(x), x.astype(np.int32) @ weights.astype(np.int32), err_msg=str(rows))


@pytest.mark.parametrize("rows", [1, 3])
def test_few_rows_by_any_number_of_columns(rows: int) -> None:
    """Keys of a cache: dot products along them, several keys at a time, then one by one."""
    nodes = [node("Transpose", "k", "t", perm=[0, 2, 1]), node("MatMul", "q t", "y")]
    model = make_model(nodes, {"q": (F32, ("b", rows, 40)), "k": (F32, ("b", "n", 40))}, ["y"])
    compiled = [mirlo.compile(model, threads=threads) for threads in (1, 2)]
    for batch, keys in ((1, 0), (1, 1), (2, 7), (1, 8), (3, 17), (1, 200)):
        q, k = normal(batch, rows, 40), normal(batch, keys, 40)
        for f in compiled:
            np.testing.assert_allclose(f(q, k), q @ k.transpose(0, 2, 1), rtol=2e-4, atol=2e-4, err_msg=str(keys))
