"""Subnormal weights of contractions become zeros, unless all weights are that small."""

from __future__ import annotations

import numpy as np
import pytest

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.runtime.params import ParameterStore
from mirlo.targets.llvm.pack_weights import CHUNK, flush_subnormals


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_subnormal_elements_become_zeros(dtype: type) -> None:
    info = np.finfo(dtype)
    array = np.random.default_rng(0).standard_normal(3 * CHUNK + 7).astype(dtype)
    array[:4] = 0.0, -0.0, info.tiny, -info.tiny
    array[4], array[CHUNK + 1] = np.nextafter(info.tiny, dtype(0)), -np.nextafter(info.tiny, dtype(0))
    places = [4, CHUNK + 1, 5, CHUNK - 1, CHUNK, 3 * CHUNK + 6]
    array[places[2:]] = info.tiny / 2, -info.tiny / 4, info.smallest_subnormal, -info.smallest_subnormal
    expected = array.copy()
    expected[places] = 0
    flush_subnormals(array)
    np.testing.assert_array_equal(array, expected)


def test_elements_that_matter_stay() -> None:
    info = np.finfo(np.float32)
    for largest in (info.tiny, info.tiny * 2.0**25, np.nan):
        array = np.array([info.tiny / 2, largest], np.float32)
        expected = array.copy()
        flush_subnormals(array)
        np.testing.assert_array_equal(array, expected)


def test_other_types_stay() -> None:
    for array in (np.full(3, 6e-8, np.float16), np.ones(3, np.int32), np.zeros(0, np.float32)):
        expected = array.copy()
        flush_subnormals(array)
        np.testing.assert_array_equal(array, expected)


def test_packed_weights_have_none() -> None:
    """A product with a weight of 1e-40 shows in no sum with a weight of 1; alone it shows that the weight is 0."""
    weights = np.ones((256, 200), np.float32)
    weights[3] = 1e-40
    store = ParameterStore()
    store.add("w", weights)
    text = """func.func @main(%x: tensor<50x256xf32>) -> tensor<50x200xf32> {
      %w = "relax.constant"() {param = "w"} : () -> tensor<256x200xf32>
      %0 = "relax.matmul"(%x, %w) : (tensor<50x256xf32>, tensor<256x200xf32>) -> tensor<50x200xf32>
      return %0 : tensor<50x200xf32>
    }"""
    with make_context(), ir.Location.unknown():
        compiled = mirlo.compile(ir.Module.parse(text), params=store, cache=False)
    x = np.random.default_rng(0).standard_normal((50, 256)).astype(np.float32)
    np.testing.assert_allclose(compiled(x), x @ weights, rtol=1e-4, atol=1e-5)
    alone = np.zeros((50, 256), np.float32)
    alone[:, 3] = 1e30
    assert not np.any(compiled(alone))
