"""Products of 16-bit floats on the matrix units: executed by the emulator of PTX, and assembled with ptxas."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from assembled import find_ptxas, ptx_of_module
from executed import run_on_emulator

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.targets.nvvm.chips import find_chip
from mirlo.targets.nvvm.ptxas import run_ptxas

DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def product(left: str, right: str, result: str) -> str:
    return f"""func.func @main(%0: tensor<{left}>, %1: tensor<{right}>) -> tensor<{result}> {{
  %p = "relax.matmul"(%0, %1) : (tensor<{left}>, tensor<{right}>) -> tensor<{result}>
  %y = "relax.relu"(%p) : (tensor<{result}>) -> tensor<{result}>
  return %y : tensor<{result}>
}}"""


def normal(dtype: str, *shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(DTYPES[dtype])


def check(found: np.ndarray, wanted: np.ndarray) -> None:
    wanted = np.maximum(wanted, 0)
    error = np.abs(found.astype(np.float32) - wanted).max() / np.abs(wanted).max()
    assert error <= (1e-3 if found.dtype == np.float16 else 8e-3)


@pytest.mark.sample(6)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "size", [(64, 64, 64), (32, 16, 32), (40, 24, 48), (50, 30, 37), (33, 72, 40), (200, 136, 64), (40, 64, 232)]
)
def test_products(size: tuple[int, int, int], dtype: str) -> None:
    m, n, k = size
    x, y = normal(dtype, m, k), normal(dtype, k, n)
    found, schedules = run_on_emulator(product(f"{m}x{k}x{dtype}", f"{k}x{n}x{dtype}", f"{m}x{n}x{dtype}"), [x, y])
    assert "tensor cores" in schedules
    check(found, x.astype(np.float32) @ y.astype(np.float32))


def test_batches() -> None:
    x, y = normal("f16", 3, 32, 24), normal("f16", 3, 24, 40)
    found, schedules = run_on_emulator(product("3x32x24xf16", "3x24x40xf16", "3x32x40xf16"), [x, y])
    assert "tensor cores" in schedules
    check(found, x.astype(np.float32) @ y.astype(np.float32))


@pytest.mark.sample(0)
@pytest.mark.parametrize("tile", range(4))
def test_tiles(tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from mirlo.targets.nvvm.schedule import tensorcore

    monkeypatch.setattr(tensorcore, "choose_tile", lambda *_: tensorcore.TILES[tile])
    x, y = normal("f16", 150, 72), normal("f16", 72, 140)
    found, _ = run_on_emulator(product("150x72xf16", "72x140xf16", "150x140xf16"), [x, y])
    check(found, x.astype(np.float32) @ y.astype(np.float32))


@pytest.mark.sample(0)
def test_convolutions() -> None:
    x, w = normal("f16", 1, 16, 9, 10), normal("f16", 24, 16, 3, 3)
    text = """func.func @main(%0: tensor<1x16x9x10xf16>, %1: tensor<24x16x3x3xf16>) -> tensor<1x24x9x10xf16> {
  %p = "relax.conv"(%0, %1) {padding = array<i64: 1, 1, 1, 1>} :
    (tensor<1x16x9x10xf16>, tensor<24x16x3x3xf16>) -> tensor<1x24x9x10xf16>
  %y = "relax.relu"(%p) : (tensor<1x24x9x10xf16>) -> tensor<1x24x9x10xf16>
  return %y : tensor<1x24x9x10xf16>
}"""
    found, schedules = run_on_emulator(text, [x, w])
    assert "tensor cores" in schedules
    padded = np.pad(x.astype(np.float32), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    check(found, np.einsum("ncyxrs,ocrs->noyx", windows, w.astype(np.float32)))


@pytest.mark.sample(0)
@pytest.mark.parametrize(("strides", "kernel"), [(1, "3x3x16x24"), (2, "5x3x16x24")])
def test_images_are_copied_whole_pixels_at_a_time(strides: int, kernel: str) -> None:
    size = [int(n) for n in kernel.split("x")]
    high, wide = (9 + 2 - size[0]) // strides + 1, (10 + 2 - size[1]) // strides + 1
    given, made = "tensor<2x9x10x16xf16>", f"tensor<2x{high}x{wide}x24xf16>"
    text = f"""func.func @main(%0: {given}, %1: tensor<{kernel}xf16>) -> {made} {{
  %p = "relax.conv"(%0, %1) {{padding = array<i64: 1, 1, 1, 1>, strides = array<i64: {strides}, {strides}>,
    data_layout = "N*C", kernel_layout = "*IO"}} : ({given}, tensor<{kernel}xf16>) -> {made}
  %y = "relax.relu"(%p) : ({made}) -> {made}
  return %y : {made}
}}"""
    x, w = normal("f16", 2, 9, 10, 16), normal("f16", *size)
    found, schedules = run_on_emulator(text, [x, w])
    assert "tensor cores" in schedules
    padded = np.pad(x.astype(np.float32), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, tuple(size[:2]), (1, 2))[:, ::strides, ::strides]
    check(found, np.einsum("nyxcrs,rsco->nyxo", windows, w.astype(np.float32)))
    with make_context(), ir.Location.unknown():
        ptx = ptx_of_module(ir.Module.parse(text), "sm_80")
    assert "cp.async.cg.shared.global" in ptx and "ld.global" not in ptx


@pytest.mark.sample(0)
@pytest.mark.skipif(find_ptxas() is None, reason="no ptxas: pip install nvidia-cuda-nvcc, or install CUDA")
@pytest.mark.parametrize("chip", ["sm_80", "sm_86", "sm_100", "sm_120"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_large_products_use_the_matrix_units_without_spills(dtype: str, chip: str) -> None:
    kind = f"4096x4096x{dtype}"
    with make_context(), ir.Location.unknown():
        ptx = ptx_of_module(ir.Module.parse(product(kind, kind, kind)), chip)
    assert ptx.count("mma.sync.aligned.m16n8k16") == 64 and "cp.async.cg.shared.global" in ptx
    assert ".extern .shared .align 1024" in ptx, "more memory than fits a global comes with the launch"
    assert run_ptxas(ptx, find_chip(chip)).spilled_bytes == 0
