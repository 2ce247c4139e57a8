"""Products of f32 in large tiles: executed by the emulator of PTX, and assembled with ptxas."""

from __future__ import annotations

import numpy as np
import pytest
from assembled import needs_ptxas, ptx_of_module
from executed import run_on_emulator
from test_formats import product, values

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.targets.gpu.schedule.contraction import fma
from mirlo.targets.nvvm.chips import find_chip
from mirlo.targets.nvvm.ptxas import run_ptxas


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    ("tile", "transposed", "size"),
    [
        (0, "", (140, 136, 44)), (0, "ab", (132, 130, 37)), (0, "b", (128, 128, 64)),
        (1, "", (70, 136, 44)), (2, "a", (132, 70, 37)), (3, "b", (64, 68, 64)),
    ],
)  # fmt: skip
def test_products(tile: int, transposed: str, size: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fma, "choose_tile", lambda *_: fma.TILES[tile])
    m, n, k = size
    a, b = values("f32", m, k), values("f32", k, n)
    given = [np.ascontiguousarray(x.T if side in transposed else x) for x, side in ((a, "a"), (b, "b"))]
    shapes = [f"{x.shape[0]}x{x.shape[1]}" for x in given]
    text = product((shapes[0], "f32"), (shapes[1], "f32"), f"{m}x{n}", "f32", transposed)
    found, schedules = run_on_emulator(text, given)
    assert "large tiles" in schedules
    np.testing.assert_allclose(found, a @ b, rtol=1e-5, atol=2e-5)


def check_convolution(count: int, height: int, width: int, channels: int) -> str:
    """Images of 8 channels under 3x3 windows, against numpy; the schedule."""
    x, w = values("f32", count, 8, height, width), values("f32", channels, 8, 3, 3)
    image, out = f"tensor<{count}x8x{height}x{width}xf32>", f"tensor<{count}x{channels}x{height}x{width}xf32>"
    text = f"""func.func @main(%0: {image}, %1: tensor<{channels}x8x3x3xf32>) -> {out} {{
      %p = "relax.conv"(%0, %1) {{padding = array<i64: 1, 1, 1, 1>}} : ({image}, tensor<{channels}x8x3x3xf32>) -> {out}
      return %p : {out}
    }}"""
    found, schedule = run_on_emulator(text, [x, w])
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    np.testing.assert_allclose(found, np.einsum("ncyxrs,ocrs->noyx", windows, w), rtol=1e-4, atol=1e-4)
    return schedule


@pytest.mark.sample(0)
def test_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fma, "choose_tile", lambda *_: fma.TILES[-1])
    assert "large tiles" in check_convolution(1, 9, 10, 72)


@needs_ptxas()
@pytest.mark.parametrize("transposed", ["", "ab"])
def test_large_products_read_16_bytes_at_once_without_spills(transposed: str) -> None:
    with make_context(), ir.Location.unknown():
        text = product(("4096x4096", "f32"), ("4096x4096", "f32"), "4096x4096", "f32", transposed)
        ptx = ptx_of_module(ir.Module.parse(text), "sm_80")
    lines = ptx.splitlines()
    assert sum("fma.rn.f32" in line for line in lines) == 8 * 64
    assert sum("ld.shared" in line for line in lines) == sum("ld.shared.v4" in line for line in lines) == 4 * 8
    assert all(".v4" in line for line in lines if "ld.global" in line or "st.global" in line)
    made = run_ptxas(ptx, find_chip("sm_80"))
    assert made.spilled_bytes == 0 and made.registers <= 144, made.registers
