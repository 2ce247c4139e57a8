"""Models give the same results on one and on several threads."""

from __future__ import annotations

import numpy as np
import pytest

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.runtime import threads

GRAPH = """
func.func @main(%x: tensor<192x256xf32>, %w: tensor<256x320xf32>, %b: tensor<320xf32>) -> tensor<192x320xf32> {
  %0 = "relax.matmul"(%x, %w) : (tensor<192x256xf32>, tensor<256x320xf32>) -> tensor<192x320xf32>
  %1 = "relax.add"(%0, %b) : (tensor<192x320xf32>, tensor<320xf32>) -> tensor<192x320xf32>
  %2 = "relax.softmax"(%1) : (tensor<192x320xf32>) -> tensor<192x320xf32>
  %3 = "relax.tanh"(%2) : (tensor<192x320xf32>) -> tensor<192x320xf32>
  return %3 : tensor<192x320xf32>
}
"""


@pytest.mark.skipif(not threads.supported(), reason="no POSIX threads here")
def test_same_numbers() -> None:
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(GRAPH)
        one, three = mirlo.compile(module), mirlo.compile(module, threads=3)
    generator = np.random.default_rng(1)
    arrays = [generator.standard_normal(spec.shape, dtype=np.float32) for spec in one.inputs]
    expected = one(*arrays)
    for _ in range(20):
        np.testing.assert_array_equal(three(*arrays), expected)
