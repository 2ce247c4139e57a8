"""Products of few rows, and products with long sums in parts: executed by the emulator of PTX, and assembled."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from assembled import needs_ptxas, ptx_of_module
from executed import run_on_emulator

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.targets.gpu.schedule import costs
from mirlo.targets.nvvm.chips import find_chip
from mirlo.targets.nvvm.ptxas import run_ptxas

DTYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
SLACK = {"f64": 1e-12, "f32": 1e-6, "f16": 1e-3, "bf16": 8e-3}


def text(m: int, n: int, k: int, dtype: str, transposed: bool) -> str:
    """Return relu(x @ w + b) with the matrix [k, n], or transposed, [n, k]."""
    matrix = f"{n}x{k}" if transposed else f"{k}x{n}"
    x, w, b, y = (f"tensor<{shape}x{dtype}>" for shape in (f"{m}x{k}", matrix, n, f"{m}x{n}"))
    return f"""func.func @main(%x: {x}, %w: {w}, %b: {b}) -> {y} {{
  %p = "relax.matmul"(%x, %w) {{transpose_rhs = {str(transposed).lower()}}} : ({x}, {w}) -> {y}
  %s = "relax.add"(%p, %b) : ({y}, {b}) -> {y}
  %y = "relax.relu"(%s) : ({y}) -> {y}
  return %y : {y}
}}"""


def check(m: int, n: int, k: int, dtype: str, transposed: bool) -> str:
    rng = np.random.default_rng(m + n + k)
    x, w, b = (rng.standard_normal(s).astype(DTYPES[dtype]) for s in ((m, k), (n, k) if transposed else (k, n), (n,)))
    found, schedule = run_on_emulator(text(m, n, k, dtype, transposed), [x, w, b])
    wide = (v.astype(np.float64) for v in (x, w.T if transposed else w, b))
    left, right, bias = wide
    wanted = np.maximum(left @ right + bias, 0)
    np.testing.assert_allclose(found.astype(np.float64), wanted, atol=SLACK[dtype] * np.abs(wanted).max(), rtol=0)
    return schedule


def test_thin_products_in_parts() -> None:
    """Parts of a product that no tile fits have one thread per sum."""
    assert "in 8 parts" in check(3, 256, 512, "f64", False)


@pytest.mark.sample(5)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("size", "dtype"),
    [((1, 64, 256), "f32"), ((1, 72, 512), "f16"), ((3, 40, 1024), "bf16"), ((8, 24, 104), "f16"), ((5, 8, 40), "f32")],
)
def test_few_rows(size: tuple[int, int, int], dtype: str, transposed: bool) -> None:
    assert 'stages = "matrix by few rows"' in check(*size, dtype, transposed)


@pytest.mark.parametrize("transposed", [False, True])
def test_few_rows_in_parts(transposed: bool) -> None:
    assert "matrix by few rows in" in check(1, 32, 32768, "f16", transposed)


@pytest.mark.sample(0)
def test_tiles_in_parts() -> None:
    assert "tensor cores in" in check(16, 16, 16384, "f16", False)


@pytest.mark.sample(0)
@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
def test_convolutions_in_parts(chip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "LAUNCH", 0.0)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float16) for s in ((1, 64, 5, 5), (24, 64, 3, 3)))
    kinds = "(tensor<1x64x5x5xf16>, tensor<24x64x3x3xf16>) -> tensor<1x24x5x5xf16>"
    module = f"""func.func @main(%x: tensor<1x64x5x5xf16>, %w: tensor<24x64x3x3xf16>) -> tensor<1x24x5x5xf16> {{
      %y = "relax.conv"(%x, %w) {{padding = array<i64: 1, 1, 1, 1>}} : {kinds}
      return %y : tensor<1x24x5x5xf16>
    }}"""
    found, schedule = run_on_emulator(module, [x, w], f"chip={chip}")
    assert " parts" in schedule
    padded = np.pad(x.astype(np.float32), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    wanted = np.einsum("ncyxrs,ocrs->noyx", windows, w.astype(np.float32))
    np.testing.assert_allclose(found.astype(np.float32), wanted, atol=1e-3 * np.abs(wanted).max(), rtol=0)


def test_whole_numbers_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "LAUNCH", 0.0)
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-128, 128, s).astype(np.int8) for s in ((16, 512), (512, 16)))
    module = """func.func @main(%x: tensor<16x512xi8>, %w: tensor<512x16xi8>) -> tensor<16x16xi32> {
      %y = "relax.matmul"(%x, %w) {out_dtype = i32} : (tensor<16x512xi8>, tensor<512x16xi8>) -> tensor<16x16xi32>
      return %y : tensor<16x16xi32>
    }"""
    found, schedule = run_on_emulator(module, [x, w], result_type=np.int32)
    assert " parts" in schedule
    np.testing.assert_array_equal(found, x.astype(np.int32) @ w.astype(np.int32))


@pytest.mark.sample(0)
def test_a_product_that_fills_the_chip_is_not_divided() -> None:
    with make_context(), ir.Location.unknown():
        ptx = ptx_of_module(ir.Module.parse(text(4096, 4096, 4096, "f16", False)), "sm_80")
    assert ptx.count(".entry") == 1


@needs_ptxas()
@pytest.mark.parametrize("transposed", [False, True])
def test_weights_of_a_decoder_are_read_16_bytes_at_a_time(transposed: bool) -> None:
    with make_context(), ir.Location.unknown():
        ptx = ptx_of_module(ir.Module.parse(text(1, 4096, 4096, "f16", transposed)), "sm_80")
    # Four reads of the matrix are under way together, and of the row where it lies along the sums as well.
    assert ptx.count("ld.global.v4.b32") >= 4 and "shfl.sync.bfly" in ptx
    kernel = run_ptxas(ptx, find_chip("sm_80"))
    assert kernel.spilled_bytes == 0 and kernel.registers <= 168


@needs_ptxas()
def test_few_blocks_have_registers_for_their_reads() -> None:
    few, many = text(1, 4096, 4096, "f32", False), text(1, 1 << 19, 64, "f32", False)
    with make_context(), ir.Location.unknown():
        ptx, others = (ptx_of_module(ir.Module.parse(module), "sm_90a") for module in (few, many))
    assert ".minnctapersm 1" in ptx and ".minnctapersm" not in others
    loop = ptx[: ptx.index("fma.rn.f32")]
    assert loop.count("ld.global.v4.b32") == 8, "reads come before all that waits for them"
    assert run_ptxas(ptx, find_chip("sm_90a")).registers >= 8 * 4 + 8
