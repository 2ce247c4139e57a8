"""Attention in one kernel: against numpy, with all kinds of masks and heads, in one block and in several."""

from __future__ import annotations

import numpy as np
import pytest
from attention_cases import CASES, reference

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_against_numpy(name: str, threads: int) -> None:
    case = CASES[name]
    arrays = case.arrays()
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(case.text())
        executable = mirlo.compile(module, threads=threads)
    np.testing.assert_allclose(executable(*arrays), case.expected(arrays), rtol=2e-5, atol=2e-6)
    assert len(executable.artifact.kernels) == 1


def test_operands_that_are_slices_and_permutes() -> None:
    """Query, keys and values as parts of one tensor, heads between: none of it is copied."""
    text = """func.func @main(%qkv: tensor<2x19x9x16xf32>) -> tensor<2x19x3x16xf32> {
      %0:3 = "relax.split"(%qkv) {axis = 2 : i64, sizes = [3, 3, 3],
        resultSegmentSizes = array<i32: 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
        : (tensor<2x19x9x16xf32>) -> (tensor<2x19x3x16xf32>, tensor<2x19x3x16xf32>, tensor<2x19x3x16xf32>)
      %q = "relax.permute"(%0#0) {axes = array<i64: 0, 2, 1, 3>} : (tensor<2x19x3x16xf32>) -> tensor<2x3x19x16xf32>
      %k = "relax.permute"(%0#1) {axes = array<i64: 0, 2, 1, 3>} : (tensor<2x19x3x16xf32>) -> tensor<2x3x19x16xf32>
      %v = "relax.permute"(%0#2) {axes = array<i64: 0, 2, 1, 3>} : (tensor<2x19x3x16xf32>) -> tensor<2x3x19x16xf32>
      %1 = "relax.attention"(%q, %k, %v) {causal = true}
        : (tensor<2x3x19x16xf32>, tensor<2x3x19x16xf32>, tensor<2x3x19x16xf32>) -> tensor<2x3x19x16xf32>
      %2 = "relax.permute"(%1) {axes = array<i64: 0, 2, 1, 3>} : (tensor<2x3x19x16xf32>) -> tensor<2x19x3x16xf32>
      return %2 : tensor<2x19x3x16xf32>
    }"""
    with make_context(), ir.Location.unknown():
        executable = mirlo.compile(ir.Module.parse(text))
    x = np.random.default_rng(0).standard_normal((2, 19, 9, 16), dtype=np.float32)
    q, k, v = (x[:, :, i : i + 3].transpose(0, 2, 1, 3) for i in (0, 3, 6))
    want = reference(q, k, v, None, None, True).transpose(0, 2, 1, 3)
    np.testing.assert_allclose(executable(x), want, rtol=2e-5, atol=2e-6)
    assert len(executable.artifact.kernels) == 1
