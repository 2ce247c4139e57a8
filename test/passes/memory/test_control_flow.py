"""Branches and loops give the same results over buffers as over tensors."""

from __future__ import annotations

import numpy as np
import pytest
from random_control_flow import random_program

import mirlo
from mirlo.runtime import packed
from mirlo.runtime.errors import PackedFunctionError

SEEDS = 20


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_programs(seed: int, tmp_path) -> None:
    text, meaning = random_program(seed)
    path = tmp_path / "program.mlir"
    path.write_text(text)
    executable = mirlo.compile(path)
    rng = np.random.default_rng(seed)
    x, y = (rng.uniform(-1, 1, 4).astype(np.float32) for _ in range(2))
    for flag in (True, False):
        for rounds in (0, 1, 2, 5):
            given = (x, y, np.array(flag), np.array(rounds, np.int64))
            found = executable(*given)
            results = found if isinstance(found, (tuple, list)) else [found]
            for got, expected in zip(results, meaning(*given), strict=True):
                np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5, err_msg=text)


COUNTED = """
func.func @main(%x: tensor<2xf32>, %n: tensor<i64>) -> tensor<2xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %rounds = tensor.extract %n[] : tensor<i64>
  %end = arith.index_cast %rounds : i64 to index
  %0 = scf.for %i = %zero to %end step %one iter_args(%v = %x) -> (tensor<2xf32>) {
    %1 = "relax.exp"(%v) : (tensor<2xf32>) -> tensor<2xf32>
    %2 = "relax.call_dps_packed"(%1) {function = "test.next", operandSegmentSizes = array<i32: SEGMENTS>,
        resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<2xf32>) -> tensor<2xf32>
    scf.yield %2 : tensor<2xf32>
  }
  return %0 : tensor<2xf32>
}
""".replace("SEGMENTS", ", ".join(["1", *["0"] * 15]))


def test_a_packed_function_in_a_loop_that_fails_ends_the_run(tmp_path) -> None:
    calls = []

    def following(x: np.ndarray, y: np.ndarray) -> None:
        calls.append(float(x[0]))
        if len(calls) == 3:
            raise ValueError("three is enough")
        y[...] = np.log(x) + 1

    path = tmp_path / "counted.mlir"
    path.write_text(COUNTED)
    packed.register("test.next", following)
    try:
        executable = mirlo.compile(path)
        np.testing.assert_allclose(executable(np.float32([1, 2]), np.array(2)), [3, 4], rtol=1e-5)
        calls.clear()
        with pytest.raises(PackedFunctionError, match="three is enough"):
            executable(np.float32([1, 2]), np.array(100))
        assert len(calls) == 3
    finally:
        packed.unregister("test.next")
