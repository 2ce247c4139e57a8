"""Models with data-dependent sizes, compared with ONNX's reference evaluator: one compilation, many inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_models import BOOL, F32, I64, make_model, node

import mirlo
from mirlo.runtime.errors import InputError

RNG = np.random.default_rng(0)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


@dataclass
class Case:
    nodes: list[Any]
    inputs: dict[str, tuple[int, tuple[Any, ...]]]
    runs: list[Sequence[np.ndarray]]
    outputs: list[str] = field(default_factory=lambda: ["y"])
    constants: dict[str, Any] = field(default_factory=dict)


X = normal(4, 6)
BOOLS = np.array([[True, False, True], [False, False, True]])
CASES = {
    "nonzero": Case(
        [node("NonZero", "x", "y")], {"x": (BOOL, ("n", 3))},
        [[BOOLS], [~BOOLS], [np.zeros((5, 3), bool)], [np.ones((0, 3), bool)]],
    ),
    "what follows nonzero": Case(
        [
            node("NonZero", "x", "i"), node("Transpose", "i", "t"), node("Cast", "t", "f", to=F32),
            node("MatMul", "f w", "y"),
        ],
        {"x": (BOOL, ("n", 3)), "w": (F32, (2, "k"))}, [[BOOLS, normal(2, 4)], [~BOOLS, normal(2, 1)]],
    ),
    "compress": Case(
        [node("Compress", "x c", "y", axis=1)], {"x": (F32, ("n", 6)), "c": (BOOL, (6,))},
        [[X, np.array([1, 0, 0, 1, 1, 0], bool)], [X[:2], np.zeros(6, bool)]],
    ),
    "slice": Case(
        [node("Slice", "x b e a s", "y")],
        {"x": (F32, ("n", 6)), **{name: (I64, (2,)) for name in "beas"}},
        [
            [X, ints(1, 0), ints(3, 100), ints(0, 1), ints(1, 2)],
            [X, ints(-1, 5), ints(-100, 0), ints(1, 0), ints(-1, 1)],
            [X[:3], ints(3, 5), ints(1, -7), ints(0, 1), ints(1, -2)],
        ],
    ),
    "reshape": Case(
        [node("Reshape", "x s", "y")], {"x": (F32, ("n", 6)), "s": (I64, (3,))},
        [[X, ints(2, -1, 3)], [X, ints(0, 3, 2)], [X[:1], ints(1, 1, 6)]],
    ),
    "reshape of what was computed before": Case(
        [node("Neg", "x", "t"), node("Reshape", "t s", "y")], {"x": (F32, ("n", 6)), "s": (I64, (3,))},
        [[X, ints(2, -1, 3)], [X[:1], ints(1, 1, 6)]],
    ),
    "expand": Case(
        [node("Expand", "x s", "y")], {"x": (F32, ("n", 1)), "s": (I64, (3,))},
        [[X[:, :1], ints(2, 1, 5)], [X[:2, :1], ints(1, 2, 1)], [X[:2, :1], ints(0, 2, 3)]],
    ),
    "tile": Case(
        [node("Tile", "x r", "y")], {"x": (F32, ("n", 6)), "r": (I64, (2,))},
        [[X, ints(1, 1)], [X, ints(2, 3)], [X[:1], ints(0, 2)]],
    ),
    "range": Case(
        [node("Range", "a b c", "y")], {name: (I64, ()) for name in "abc"},
        [[np.int64(a), np.int64(b), np.int64(c)] for a, b, c in ((0, 7, 2), (5, -3, -3), (4, 4, 1), (3, 0, 1))],
    ),
    "range of floats": Case(
        [node("Range", "a b c", "y")], {name: (F32, ()) for name in "abc"},
        [[np.float32(a), np.float32(b), np.float32(c)] for a, b, c in ((0, 7, 2.5), (5, -3, -0.5), (4, 4, 1))],
    ),
    "pad": Case(
        [node("Pad", "x p v a", "y")],
        {"x": (F32, ("n", 6)), "p": (I64, (2,)), "v": (F32, ()), "a": (I64, (1,))},
        [[X, ints(1, 2), np.float32(7), ints(1)], [X, ints(0, 3), np.float32(7), ints(-2)]],
    ),
    "reflected": Case(
        [node("Pad", "x p", "y", mode="reflect")], {"x": (F32, ("n", 6)), "p": (I64, (4,))},
        [[X, ints(1, 2, 2, 3)], [X, ints(0, 0, 0, 0)]],
    ),
    "topk": Case(
        [node("TopK", "x k", "y i")], {"x": (F32, ("n", 6)), "k": (I64, (1,))},
        [[X, ints(2)], [X, ints(6)], [X, ints(0)]], ["y", "i"],
    ),
    "one hot": Case(
        [node("OneHot", "x d v", "y", axis=0)], {"x": (I64, ("n",)), "d": (I64, ()), "v": (F32, (2,))},
        [[ints(0, 2, -1), np.int64(3), np.float32([0, 1])], [ints(1), np.int64(5), np.float32([2, 3])]],
    ),
    "constant of shape": Case(
        [node("ConstantOfShape", "s", "y")], {"s": (I64, (2,))}, [[ints(2, 3)], [ints(0, 4)], [ints(1, 1)]]
    ),
    "trilu": Case(
        [node("Trilu", "x k", "y")], {"x": (F32, ("n", "m")), "k": (I64, ())},
        [[X, np.int64(0)], [X, np.int64(-2)], [X[:2], np.int64(3)]],
    ),
    "split": Case(
        [node("Split", "x s", "y z", axis=1)], {"x": (F32, ("n", 6)), "s": (I64, (2,))},
        [[X, ints(2, 4)], [X, ints(6, 0)]], ["y", "z"],
    ),
    "inside of a model": Case(
        [
            node("NonZero", "c", "i"), node("Transpose", "i", "t"), node("GatherND", "x t", "g"),
            node("Softmax", "g", "p", axis=0), node("ReduceSum", "p", "total", keepdims=0),
        ],
        {"c": (BOOL, ("n", 6)), "x": (F32, ("n", 6))}, [[X > 0, X], [X > 1, X]], ["p", "total"],
    ),
}  # fmt: skip


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", CASES)
def test_sizes(name: str) -> None:
    case = CASES[name]
    model = make_model(case.nodes, case.inputs, case.outputs, case.constants)
    f, reference = mirlo.compile(model), ReferenceEvaluator(model)
    for arrays in case.runs:
        given = dict(zip(case.inputs, map(np.asarray, arrays), strict=True))
        expected = reference.run(None, given)
        found = f.run(given)
        for output, wanted in zip(case.outputs, expected, strict=True):
            assert found[output].shape == wanted.shape and found[output].dtype == wanted.dtype
            np.testing.assert_allclose(found[output], wanted, rtol=1e-5)


WRONG = {
    "reshape": ([X, ints(5, -1, 3)], r"node 'y' \(Reshape\): input 'shape' does not fit the input f32\[n, 6\]"),
    "expand": ([X[:, :1], ints(2, 3, 5)], r"node 'y' \(Expand\): input 'shape' does not broadcast"),
    "topk": ([X, ints(7)], r"node 'y' \(TopK\): input 'K' must be from 0 to the size of the axis: found 7"),
    "range": ([np.int64(0), np.int64(5), np.int64(0)], r"node 'y' \(Range\): input 'delta' must not be 0"),
    "constant of shape": ([ints(2, -3)], r"input 'input' must be sizes: found -3"),
    "pad": ([X, ints(-4, -3), np.float32(0), ints(1)], r"input 'pads' takes away more than there is"),
    "slice": ([X, ints(0, 0), ints(1, 1), ints(0, 1), ints(1, 0)], r"its axes or steps cannot be"),
    "split": ([X, ints(2, 5)], r"node 'y' \(Split\): input 'split' does not add up to 6"),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_sizes_are_errors(name: str) -> None:
    case = CASES[name]
    arrays, message = WRONG[name]
    f = mirlo.compile(make_model(case.nodes, case.inputs, case.outputs, case.constants))
    with pytest.raises(InputError, match=message):
        f.run(dict(zip(case.inputs, map(np.asarray, arrays), strict=True)))


def test_a_view_of_another_size_is_an_error() -> None:
    nodes = [node("NonZero", "x", "i"), node("Reshape", "i s", "y")]
    f = mirlo.compile(make_model(nodes, {"x": (F32, ("n",))}, ["y"], {"s": ints(2, 2)}))
    np.testing.assert_array_equal(f(np.float32([0, 1, 1, 0, 1, 1])), [[1, 2], [4, 5]])
    for wrong in ([0, 1, 1], [1, 1, 1, 1, 1]):
        with pytest.raises(InputError, match="is looked at as one of 4"):
            f(np.float32(wrong))


def test_memory_for_what_no_output_shows() -> None:
    """What is expanded has an unbounded size, and no output has it."""
    nodes = [node("Expand", "x s", "e"), node("ReduceSum", "e", "t", keepdims=0), node("Add", "t x", "y")]
    f = mirlo.compile(make_model(nodes, {"x": (F32, (1,)), "s": (I64, (2,))}, ["y"]))
    np.testing.assert_allclose(f(np.float32([2]), ints(30, 50)), [2 * 1500 + 2])
