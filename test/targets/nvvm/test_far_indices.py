"""Numbers of 64 bits that are no position, in kernels whose `index` has 32 bits: they are not taken modulo 2^32."""

from __future__ import annotations

import numpy as np
from executed import run_on_emulator


def test_numbers_beyond_32_bits_are_outside() -> None:
    at = np.array([2**32 + 3, -(2**32), 2**40 + 1, 2**31, -(2**63), 2**63 - 1, 1, -1], np.int64)
    text = """
func.func @main(%x: tensor<9xf32>, %at: tensor<8xi64>) -> tensor<8xf32> {
  %0 = "relax.gather"(%x, %at) {axis = 0 : i64} : (tensor<9xf32>, tensor<8xi64>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}"""
    x = np.arange(9, dtype=np.float32)
    found, _ = run_on_emulator(text, [x, at])
    np.testing.assert_array_equal(found, x[np.clip(np.where(at < 0, at + 9, at), 0, 8)])
