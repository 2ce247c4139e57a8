"""Numbers of 64 bits that are no position, in kernels whose `index` has 32 bits: they are not taken modulo 2^32."""

from __future__ import annotations

import numpy as np
import pytest
from devices import needs_vulkan

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context

FAR = np.array([2**32, -(2**32), 2**40 + 1, 2**31, -(2**63), 2**63 - 1, 1, -1], np.int64)
X = np.arange(9, dtype=np.float32)
OPERATORS = {
    "gather": """"relax.gather"(%x, %at) {axis = 0 : i64} : (tensor<9xf32>, tensor<8xi64>) -> tensor<8xf32>""",
    "gather_elements": """"relax.gather_elements"(%x, %at) {axis = 0 : i64} : (tensor<9xf32>, tensor<8xi64>)
        -> tensor<8xf32>""",
    "scatter_elements": """"relax.scatter_elements"(%x, %at, %u) {axis = 0 : i64, reduction = "add"} : (tensor<9xf32>,
        tensor<8xi64>, tensor<8xf32>) -> tensor<9xf32>""",
}


def _computed(target: str, operator: str) -> np.ndarray:
    result = operator.rpartition("-> ")[2]
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(f"""
func.func @main(%x: tensor<9xf32>, %at: tensor<8xi64>, %u: tensor<8xf32>) -> {result} {{
  %0 = {operator}
  return %0 : {result}
}}""")
        run = mirlo.compile(module, target=target, cache=False)
    found = run(X, FAR, np.ones(8, np.float32))
    assert isinstance(found, np.ndarray)
    return found


@needs_vulkan()
@pytest.mark.parametrize("name", OPERATORS)
def test_numbers_beyond_32_bits_are_outside(name: str) -> None:
    expected, found = (_computed(target, OPERATORS[name]) for target in ("llvm", "spirv"))
    np.testing.assert_array_equal(found, expected)
