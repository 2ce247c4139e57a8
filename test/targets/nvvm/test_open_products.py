"""Products with a dynamic number of rows on the matrix units, on the fake driver."""

from __future__ import annotations

import numpy as np
import pytest

import mirlo
from mirlo import R
from mirlo.testing.ptx.fake_cuda import FakeDriver

GENERATOR = np.random.default_rng(0)
WEIGHT = (GENERATOR.standard_normal((40, 48)) / 8).astype(np.float16)
BYTES = GENERATOR.integers(-128, 128, (48, 64)).astype(np.int8)


@mirlo.script
def layer(x: R.Tensor[("n", 40), R.f16]):  # noqa: F821, UP037
    return R.relu(R.matmul(x, R.const(WEIGHT)))


@mirlo.script
def batches(x: R.Tensor[("b", "n", 24), R.f16], y: R.Tensor[("b", 24, 48), R.f16]):  # noqa: F821, UP037
    return R.matmul(x, y)


@mirlo.script
def narrow(x: R.Tensor[("n", 48), R.i8]):  # noqa: F821, UP037
    return R.matmul(x, R.const(BYTES), out_dtype="i32")


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
def test_rows(chip: str, driver: FakeDriver) -> None:
    compiled = mirlo.compile(layer, target=f"nvvm{{chip={chip}}}", cache=False)
    assert b"mma.sync" in compiled.artifact.code and b"cp.async" in compiled.artifact.code
    for rows in (1, 37, 80):
        x = GENERATOR.standard_normal((rows, 40)).astype(np.float16)
        wanted = np.maximum(x.astype(np.float32) @ WEIGHT.astype(np.float32), 0)
        np.testing.assert_allclose(compiled(x).astype(np.float32), wanted, rtol=2e-3, atol=2e-3)


def test_batches(driver: FakeDriver) -> None:
    compiled = mirlo.compile(batches, target="nvvm{chip=sm_80}", cache=False)
    assert b"mma.sync" in compiled.artifact.code
    for batch, rows in ((1, 20), (3, 33)):
        x = GENERATOR.standard_normal((batch, rows, 24)).astype(np.float16)
        y = GENERATOR.standard_normal((batch, 24, 48)).astype(np.float16)
        wanted = x.astype(np.float32) @ y.astype(np.float32)
        np.testing.assert_allclose(compiled(x, y).astype(np.float32), wanted, rtol=2e-3, atol=1e-2)


def test_bytes(driver: FakeDriver) -> None:
    compiled = mirlo.compile(narrow, target="nvvm{chip=sm_80}", cache=False)
    assert b"mma.sync" in compiled.artifact.code
    x = GENERATOR.integers(-128, 128, (21, 48)).astype(np.int8)
    np.testing.assert_array_equal(compiled(x), x.astype(np.int32) @ BYTES.astype(np.int32))
