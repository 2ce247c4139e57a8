"""The pass `transpose-weights`: the same results from weights that are contiguous along K."""

from __future__ import annotations

import numpy as np
import pytest

import mirlo
from mirlo import R
from mirlo.testing.ptx.fake_cuda import FakeDriver

GENERATOR = np.random.default_rng(0)
BYTES = GENERATOR.integers(-128, 128, (96, 64)).astype(np.int8)
KERNEL = (GENERATOR.standard_normal((64, 32, 3, 3)) / 8).astype(np.float32)


@mirlo.script
def product(x: R.Tensor[(64, 96), R.i8]):
    return R.matmul(x, R.const(BYTES), out_dtype="i32")


@mirlo.script
def image(x: R.Tensor[(1, 32, 9, 10), R.f32]):
    return R.conv(x, R.const(KERNEL), padding=[1, 1, 1, 1])


def test_bytes(driver: FakeDriver) -> None:
    compiled = mirlo.compile(product, target="nvvm{chip=sm_80}", cache=False)
    (x,) = compiled.random_inputs().values()
    np.testing.assert_array_equal(compiled(x), x.astype(np.int32) @ BYTES.astype(np.int32))
    code = compiled.artifact.code
    assert b"mma.sync" in code and b"cp.async.cg" in code and b"prmt" not in code


@pytest.mark.parametrize(("options", "shape"), [("", (3, 3, 32, 64)), (" tf32=true", (64, 3, 3, 32))])
def test_kernels_of_convolutions_only_where_they_are_rounded(
    options: str, shape: tuple[int, ...], driver: FakeDriver
) -> None:
    compiled = mirlo.compile(image, target=f"nvvm{{chip=sm_80{options}}}", cache=False)
    assert [spec.shape for spec in compiled.artifact.params] == [shape]
    (x,) = compiled.random_inputs().values()
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    wanted = np.einsum("ncyxrs,ocrs->noyx", windows, KERNEL)
    np.testing.assert_allclose(compiled(x), wanted, rtol=1e-2, atol=1e-2)
