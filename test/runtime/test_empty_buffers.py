"""Buffers without elements can be read for some bytes, wherever they are."""

from __future__ import annotations

import ctypes
import itertools
import math
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import mirlo
from mirlo.dialects.bindings import ir, new_context
from mirlo.dialects.core import dims as D
from mirlo.dialects.tir.buffers import UNBOUNDED, buffer_type, tensor_bytes
from mirlo.runtime.container import READABLE, address_of, empty_aligned
from mirlo.runtime.sizes import Allocations

MODEL = """
  <ir_version: 9, opset_import: ["": 18]>
  g (float[{n}, 8] x, float[{n}, 1] s, float[4, 8] z) => (float[m, 8] y, float[8, 8] p, float[k, 8] t) {{
    a = Mul(x, s)  b = Sigmoid(a)  axes = Constant<value_ints = [0]>()
    c = ReduceSum<keepdims = 1>(b, axes)
    d = Transpose<perm = [1, 0]>(b)  p = MatMul(d, b)
    y = Softmax<axis = -1>(b)
    e = Mul(z, c)  t = Concat<axis = 0>(e, y)
  }}"""


@pytest.mark.parametrize("n", ["0", "n"])
def test_models_without_rows(n: str) -> None:
    made = parser.parse_model(MODEL.format(n=n))
    given = {"x": np.zeros((0, 8), np.float32), "s": np.zeros((0, 1), np.float32), "z": np.ones((4, 8), np.float32)}
    expected = onnxruntime.InferenceSession(made.SerializeToString()).run(None, given)
    for one, other in zip(mirlo.compile(made)(**given), expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("opt_level", [0, 2])
@pytest.mark.parametrize("shape", ["0, n, m", "n, 0, m", "n, m, 0", "0, 0, m"])
def test_models_with_an_empty_dim_beside_dynamic_ones(shape: str, opt_level: int) -> None:
    """A buffer of no bytes has no type without bound: on a stack frame, that is 2^50 bytes."""
    text = f"""
      <ir_version: 9, opset_import: ["": 18]>
      g (float[{shape}] x) => (float[a, b, c] y, float[d, e] z) {{
        s = Softmax<axis = 1>(x)  e = Exp(s)  axes = Constant<value_ints = [2]>()
        y = Softmax<axis = 2>(e)  z = ReduceSum<keepdims = 0>(e, axes)
      }}"""
    made = parser.parse_model(text)
    sizes = [int(dim) if dim.isdigit() else 3 for dim in shape.split(", ")]
    y, z = mirlo.compile(made, opt_level=opt_level)(np.zeros(sizes, np.float32))
    assert y.shape == tuple(sizes)
    np.testing.assert_array_equal(z, np.zeros(sizes[:2], np.float32))


def test_type_and_size_of_buffers_agree() -> None:
    n = D.symbol("n")
    with new_context(), ir.Location.unknown():
        element = ir.F32Type.get()
        for shape in itertools.product((0, 1, 5, n, n + 1, n - n), repeat=3):
            kind, size = buffer_type(shape, element), tensor_bytes(shape, element)
            count = math.prod(kind.shape)
            assert count == (size // 4 if isinstance(size, int) else UNBOUNDED), shape
            assert size != 0 or kind.shape[0] == 0, shape


def test_arenas_of_empty_buffers_can_be_read() -> None:
    executable = mirlo.compile(parser.parse_model(MODEL.format(n="0")))
    assert isinstance(executable, mirlo.Executable)
    used = executable.artifact.arena_bytes
    assert used == 0 or used >= READABLE


def test_memory_of_a_call_can_be_read() -> None:
    late = Allocations()
    found: Any = late.function(0, 0, 0)
    assert found % READABLE == 0
    assert late._kept[0].nbytes >= READABLE
    assert late.output(0, np.dtype(np.float32), (0, 3)).shape == (0, 3)


def test_empty_arrays_of_users_can_be_read() -> None:
    for array in (np.empty((0, 3), np.float32), empty_aligned(np.dtype(np.int64), (2, 0)), np.empty(0, bool)):
        assert len(ctypes.string_at(address_of(array), READABLE)) == READABLE
    assert address_of(np.ones(1)) != address_of(np.empty(0))
