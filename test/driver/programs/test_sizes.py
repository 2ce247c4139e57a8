"""Parts of programs whose tensors have sizes that data tells, in another part or in a host function."""

from __future__ import annotations

import numpy as np
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
