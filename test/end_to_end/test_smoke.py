"""The thin path, end to end: a small graph is compiled, run, saved and loaded."""

from __future__ import annotations

import numpy as np
import pytest

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context

GRAPH = """
func.func @main(%a: tensor<16x8xf32> {relax.name = "a"}, %b: tensor<8x4xf32> {relax.name = "b"}, %c: tensor<4xf32>)
    -> (tensor<16x4xf32>, tensor<64xf32>) {
  %k = "relax.constant"() {value = dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>} : () -> tensor<4xf32>
  %0 = "relax.matmul"(%a, %b) : (tensor<16x8xf32>, tensor<8x4xf32>) -> tensor<16x4xf32>
  %1 = "relax.add"(%0, %c) : (tensor<16x4xf32>, tensor<4xf32>) -> tensor<16x4xf32>
  %2 = "relax.multiply"(%1, %k) : (tensor<16x4xf32>, tensor<4xf32>) -> tensor<16x4xf32>
  %3 = "relax.reshape"(%2) {shape = [64]} : (tensor<16x4xf32>) -> tensor<64xf32>
  return %1, %3 : tensor<16x4xf32>, tensor<64xf32>
}
"""


@pytest.fixture(scope="module")
def executable():
    with make_context(), ir.Location.unknown():
        return mirlo.compile(ir.Module.parse(GRAPH))


def _arrays() -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.standard_normal(shape, dtype=np.float32) for shape in ((16, 8), (8, 4), (4,))]


def _check(results: tuple[np.ndarray, ...], a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    first = a @ b + c
    np.testing.assert_allclose(results[0], first, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(results[1], (first * np.float32([1, 2, 3, 4])).ravel(), rtol=1e-5, atol=1e-5)


def test_runs(executable) -> None:
    arrays = _arrays()
    _check(executable(*arrays), *arrays)


def test_saved_and_loaded(executable, tmp_path) -> None:
    executable.save(tmp_path / "model.mirlo")
    arrays = _arrays()
    _check(mirlo.load(tmp_path / "model.mirlo")(*arrays), *arrays)


def test_profile_names_every_kernel(executable) -> None:
    rows = executable.profile(*_arrays()).rows
    assert len(rows) >= 1
    assert all(row.microseconds >= 0 for row in rows)
