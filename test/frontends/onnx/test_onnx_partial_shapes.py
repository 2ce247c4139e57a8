"""Shapes with some elements computed at run time: the other elements stay known."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import mirlo
from mirlo.runtime.errors import MirloError

MODEL = """
  <ir_version: 9, opset_import: ["": 18]>
  g (float[b, n, 8] x) => (float[p, q, r] y) {{
    s = Shape(x)  first = Constant<value_ints = [0]>()  second = Constant<value_ints = [1]>()
    two = Constant<value_ints = [2]>()  one = Constant<value_ints = [1]>()
    b = Gather(s, first)  n = Gather(s, second)
    less = Sub(n, two)  half = Div(less, two)  open = Add(half, one)
    sixteen = Constant<value_ints = [16]>()  rest = Constant<value_ints = [-1]>()  copied = Constant<value_ints = [0]>()
    shape = Concat<axis = 0>({parts})
    {result}
  }}"""
RESHAPE, FILL = "y = Reshape(x, shape)", "y = ConstantOfShape<value = float[1] {3}>(shape)"


def compare(text: str, *sizes: tuple[int, int]) -> mirlo.Executable:
    model = parser.parse_model(text)
    f = mirlo.compile(model)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for b, n in sizes:
        x = np.random.default_rng(n).normal(size=(b, n, 8)).astype(np.float32)
        np.testing.assert_array_equal(f(x), session.run(None, {"x": x})[0])
    assert isinstance(f, mirlo.Executable)
    return f


@pytest.mark.sample(3)
@pytest.mark.parametrize("parts", list(permutations(("b", "open", "sixteen"))))
def test_known_elements_stay(parts: tuple[str, ...]) -> None:
    found = compare(MODEL.format(parts=", ".join(parts), result=RESHAPE), (2, 6), (1, 2), (3, 10)).outputs[0].shape
    assert found[parts.index("b")] == "b" and found[parts.index("sixteen")] == 16
    assert found[parts.index("open")] not in ("b", 16)


@pytest.mark.sample(2)
@pytest.mark.parametrize("parts", ["b, open, rest", "rest, open, sixteen", "copied, open, sixteen"])
def test_elements_that_are_no_sizes(parts: str) -> None:
    found = compare(MODEL.format(parts=parts, result=RESHAPE), (2, 6), (1, 4)).outputs[0].shape
    assert (found[0] == "b") == parts.startswith("b,") and (found[2] == 16) == parts.endswith("sixteen")


def test_sizes_of_constants() -> None:
    found = compare(MODEL.format(parts="b, open, sixteen", result=FILL), (2, 6), (1, 2), (0, 2)).outputs[0].shape
    assert found[0] == "b" and found[2] == 16


def test_what_does_not_fit_is_refused() -> None:
    f = mirlo.compile(parser.parse_model(MODEL.format(parts="b, open, sixteen", result=RESHAPE)))
    with pytest.raises(MirloError, match="input 'shape' does not fit"):
        f(np.ones((2, 5, 8), np.float32))
    f = mirlo.compile(parser.parse_model(MODEL.format(parts="b, less, sixteen", result=FILL)))
    with pytest.raises(MirloError, match="is negative, where n = 1"):
        f(np.ones((2, 1, 8), np.float32))


SLICE = """
  <ir_version: 9, opset_import: ["": 18]>
  g (float[b, n, 8] x, int64[1] k) => (float[p, q, r] y) {{
    s = Shape(x)  second = Constant<value_ints = [1]>()  n = Gather(s, second)
    zero = Constant<value_ints = [0]>()  one = Constant<value_ints = [1]>()  two = Constant<value_ints = [2]>()
    three = Constant<value_ints = [3]>()  minus = Constant<value_ints = [-2]>()
    half = Div(n, two)  most = Sub(n, one)
    starts = Concat<axis = 0>({starts})  ends = Concat<axis = 0>({ends})
    axes = Constant<value_ints = [1, 2]>()
    y = Slice(x, starts, ends, axes)
  }}"""


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("starts", "ends", "shape"),
    [
        ("zero, one", "half, three", ("b", "floordiv(n, 2)", 2)),
        ("half, zero", "n, k", ("b", "floordiv(n + 1, 2)", None)),
        ("zero, k", "half, three", ("b", "floordiv(n, 2)", None)),
        ("k, one", "n, minus", ("b", None, 5)),
        ("one, zero", "most, two", ("b", None, 2)),
        ("three, zero", "half, two", ("b", None, 2)),
    ],
)
def test_slices_keep_the_bounds_that_are_known(starts: str, ends: str, shape: tuple[int | str | None, ...]) -> None:
    model = parser.parse_model(SLICE.format(starts=starts, ends=ends))
    if "k" not in f"{starts}, {ends}".split(", "):
        del model.graph.input[1]
    f = mirlo.compile(model, cache=False)
    for found, wanted in zip(f.outputs[0].shape, shape, strict=True):
        assert wanted is None or found == wanted
    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = [each.name for each in session.get_inputs()]
    for b, n, k in ((2, 6, 1), (1, 7, 3), (3, 1, 0), (2, 2, 5), (1, 0, -1)):
        x = np.random.default_rng(n).normal(size=(b, n, 8)).astype(np.float32)
        given = {name: {"x": x, "k": np.array([k])}[name] for name in names}
        np.testing.assert_array_equal(list(f.run(given).values())[0], session.run(None, given)[0])
