"""Shapes of which the model computes some elements at run time: what is known of the others stays."""

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


@pytest.mark.parametrize("parts", list(permutations(("b", "open", "sixteen"))))
def test_known_elements_stay(parts: tuple[str, ...]) -> None:
    found = compare(MODEL.format(parts=", ".join(parts), result=RESHAPE), (2, 6), (1, 2), (3, 10)).outputs[0].shape
    assert found[parts.index("b")] == "b" and found[parts.index("sixteen")] == 16
    assert found[parts.index("open")] not in ("b", 16)


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
