"""Divisions by a number of the row are products with its reciprocal, and as exact as divisions are."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from assembled import ptx_of_module
from executed import run_on_emulator

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context


def by_largest(rows: int, columns: int, dtype: str = "f32") -> str:
    kind, row = f"tensor<{rows}x{columns}x{dtype}>", f"tensor<{rows}x1x{dtype}>"
    return f"""func.func @main(%0: {kind}) -> {kind} {{
  %m = "relax.reduce_max"(%0) {{axes = array<i64: 1>, keepdims = true}} : ({kind}) -> {row}
  %y = "relax.divide"(%0, %m) : ({kind}, {row}) -> {kind}
  return %y : {kind}
}}"""


def test_quotients_are_those_of_divisions() -> None:
    generator = np.random.default_rng(0)
    x = np.exp2(generator.uniform(-20, 20, (64, 1024))).astype(np.float32) * generator.choice([-1, 1], (64, 1024))
    x = x.astype(np.float32)
    # Rows whose divisor is nothing, infinite, subnormal, large, and one with numbers that are none.
    x[0] = 0
    x[1, 5] = np.inf
    x[2] = np.float32(1e-41) * generator.integers(1, 9, 1024).astype(np.float32)
    x[3] = np.float32(3e37) * generator.uniform(-9, 9, 1024).astype(np.float32)
    x[4] = -np.abs(x[4]) * np.float32(1e-30)
    x[5, 7] = np.nan
    x[5:8, :3] = -0.0, 0.0, -np.inf
    x[8] = -np.abs(x[8])
    x[8, 0] = np.float32(-1e-44)
    with np.errstate(all="ignore"):
        found, _ = run_on_emulator(by_largest(64, 1024), [x])
        expected = x / x.max(1, keepdims=True)
    same = (found == expected) & (np.signbit(found) == np.signbit(expected)) | (np.isnan(found) & np.isnan(expected))
    assert same.all(), (found[~same], expected[~same])


@pytest.mark.parametrize(("dtype", "steps"), [("f32", 2), ("bf16", 0)])
def test_one_division_a_thread(dtype: str, steps: int) -> None:
    with make_context(), ir.Location.unknown():
        ptx = ptx_of_module(ir.Module.parse(by_largest(256, 4096, dtype)), "sm_80")
    assert ptx.count("div.rn.f32") + ptx.count("rcp.rn.f32") == 1
    assert ptx.count("fma.rn.f32") == 4 * steps


def test_narrow_quotients() -> None:
    x = np.random.default_rng(1).standard_normal((4, 512)).astype(ml_dtypes.bfloat16)
    found, _ = run_on_emulator(by_largest(4, 512, "bf16"), [x])
    wide = x.astype(np.float32)
    np.testing.assert_allclose(found.astype(np.float32), wide / wide.max(1, keepdims=True), rtol=2**-8)


def test_single_divisions_stay() -> None:
    text = by_largest(256, 4096).replace('%y = "relax.divide"(%0, %m)', '%y = "relax.divide"(%0, %0)')
    text = text.replace("tensor<256x4096xf32>, tensor<256x1xf32>) ->", "tensor<256x4096xf32>, tensor<256x4096xf32>) ->")
    with make_context(), ir.Location.unknown():
        ptx = ptx_of_module(ir.Module.parse(text), "sm_80")
    assert "div.rn.f32" in ptx and "rcp" not in ptx
