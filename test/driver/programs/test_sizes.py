"""Parts of programs with sizes that depend on data, in another part or in a host function."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

import mirlo

HEAD = '<ir_version: 10, opset_import: ["": 21]>'

SUM = f"""{HEAD}
  g (float[6] x, bool[6] first, bool[6] second, bool flag) => (float[N] y) {{
    a = Compress(x, first)
    b = Compress(x, second)
    both = Concat<axis = 0>(a, b)
    picked = If (flag) <
      then_branch = t () => (float[M] none) {{ none = Constant<value = float[0] {{}}>() }},
      else_branch = e () => (float[K] some) {{ some = Mul(both, both) }}
    >
    axes = Constant<value_ints = [0]>()
    total = ReduceSum<keepdims = 0>(picked, axes)
    y = Mul(both, total)
  }}"""
"""What follows the branches reads a tensor of a + b elements, and neither of those."""

FILLED = f"""{HEAD}
  g (float[6] x, bool[6] first, bool flag) => (float[N] y) {{
    picked = If (flag) <
      then_branch = t () => (float[M] none) {{ none = Constant<value = float[0] {{}}>() }},
      else_branch = e () => (float[K] some) {{ some = Compress(x, first) }}
    >
    size = Shape(picked)
    ones = ConstantOfShape<value = float[1] {{1.0}}>(size)
    y = Concat<axis = 0>(ones, picked)
  }}"""
"""What fills a tensor reads nothing, but its size is known after the branches only."""

REPEATED = f"""{HEAD[:-2]}, "ai.onnx.ml": 1]>
  g (string[n] words, int64[n] counts) => (int64[n, m] y) {{
    axes = Constant<value_ints = [0]>()
    column = Constant<value_ints = [1]>()
    most = ReduceMax(counts, axes)
    repeats = Concat<axis = 0>(column, most)
    codes = ai.onnx.ml.LabelEncoder<classes_strings = ["a", "b"]>(words)
    columns = Unsqueeze(codes, column)
    y = Tile(columns, repeats)
  }}"""
"""The number of columns is known before the host function, and no tensor there has it as a dim."""


def test_sizes_that_no_tensor_carries() -> None:
    f = mirlo.compile(parser.parse_model(REPEATED))
    words = np.array(["b", "c", "a"], object)
    for counts in ([2, 3, 1], [0, 0, 0]):
        shown = np.tile(np.array([[1], [-1], [0]]), max(counts))
        np.testing.assert_array_equal(f(words, np.array(counts)), shown)
    with pytest.raises(mirlo.MirloError, match="repeats"):
        f(words, np.array([-2, -3, -1]))


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("marks", [(1, 0, 1, 1, 0, 0), (0, 0, 0, 0, 0, 0), (1, 1, 1, 1, 1, 1)])
def test_sums_of_sizes_that_data_tells(flag: bool, marks: tuple[int, ...]) -> None:
    f = mirlo.compile(parser.parse_model(SUM))
    x = np.arange(1, 7, dtype=np.float32)
    first, second = np.array(marks, bool), np.array([0, 1, 0, 0, 1, 0], bool)
    both = np.concatenate([x[first], x[second]])
    np.testing.assert_allclose(f(x, first, second, np.array(flag)), both * (0 if flag else (both * both).sum()))


@pytest.mark.parametrize("flag", [False, True])
def test_tensors_filled_to_a_size_that_a_host_function_tells(flag: bool) -> None:
    f = mirlo.compile(parser.parse_model(FILLED))
    x, first = np.arange(1, 7, dtype=np.float32), np.array([1, 0, 1, 1, 0, 0], bool)
    picked = x[:0] if flag else x[first]
    np.testing.assert_allclose(f(x, first, np.array(flag)), np.concatenate([np.ones(len(picked)), picked]))


def columns_of(kinds: str) -> onnx.ModelProto:
    """Return a model of columns of strings (s) and floats (f), each of a size of its own, side by side."""
    make, nodes, inputs = onnx.helper.make_node, [], []
    for i, kind in enumerate(kinds):
        element = onnx.TensorProto.STRING if kind == "s" else onnx.TensorProto.FLOAT
        inputs.append(onnx.helper.make_tensor_value_info(f"x{i}", element, [None, 1]))
        if kind == "s":
            nodes += [
                make("OneHotEncoder", [f"x{i}"], [f"h{i}"], domain="ai.onnx.ml", cats_strings=["a", "b", "c"]),
                make("ReduceSum", [f"h{i}", "axis"], [f"c{i}"], keepdims=0),
            ]
        else:
            nodes.append(make("Mul", [f"x{i}", "two"], [f"c{i}"]))
    nodes.append(make("Concat", [f"c{i}" for i in range(len(kinds))], ["y"], axis=1))
    constants = {"axis": np.array([1]), "two": np.float32(2)}
    graph = onnx.helper.make_graph(
        nodes, "columns", inputs, [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )  # fmt: skip
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize("kinds", ["ss", "sf", "fs", "sfs", "fsf", "ssff", "ffss"])
def test_columns_whose_sizes_host_functions_tell(kinds: str) -> None:
    """Conditions on sizes wait for the host functions that compute them, as operators do."""
    f = mirlo.compile(columns_of(kinds))
    assert "1 part " in repr(f), "what reads floats alone is a part of its own"
    words, numbers = np.array([["b"], ["c"], ["x"], ["a"]], object), np.float32([[1], [2], [3], [4]])
    shown = np.float32([[0, 1, 0], [0, 0, 1], [0, 0, 0], [1, 0, 0]])
    feeds = [words if kind == "s" else numbers for kind in kinds]
    parts = [shown if kind == "s" else numbers * 2 for kind in kinds]
    np.testing.assert_array_equal(f(*feeds), np.concatenate(parts, 1))
    for i in range(len(kinds)):
        with pytest.raises(mirlo.MirloError, match="must have one shape|an earlier input has"):
            f(*feeds[:i], feeds[i][:3], *feeds[i + 1 :])
