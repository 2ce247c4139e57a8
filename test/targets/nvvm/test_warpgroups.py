"""Products by warpgroups: executed by the emulator of PTX, and assembled with ptxas."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from assembled import needs_ptxas, ptx_of_module
from executed import run_on_emulator
from rounded import rounded_to_tf32
from test_formats import DTYPES, product
from test_formats import values as values_of_other

import mirlo
from mirlo import R
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.tir.view import PrimView, is_tensor_form, prim_functions
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.session import Session
from mirlo.passes.targets import find_target
from mirlo.targets.gpu.schedule.roles import product_of
from mirlo.targets.gpu.schedule.stage import LANES
from mirlo.targets.nvvm.chips import CHIPS, find_chip
from mirlo.targets.nvvm.options import parse_options
from mirlo.targets.nvvm.ptxas import run_ptxas
from mirlo.targets.nvvm.schedule import pipelined, products, warpgroup
from mirlo.testing.ptx.fake_cuda import FakeDriver

HALVES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
RESULTS: dict[str, Any] = {**HALVES, "f32": np.float32, "i32": np.int32}


@pytest.fixture(autouse=True)
def small_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four units: a block computes several tiles."""
    monkeypatch.setitem(CHIPS, "sm_90a", replace(CHIPS["sm_90a"], units=4))


def values(kind: str, *shape: int) -> np.ndarray:
    if kind in HALVES:
        return np.random.default_rng(sum(shape)).standard_normal(shape).astype(HALVES[kind])
    return values_of_other(kind, *shape)


def why_not(module: Any) -> str:
    """Why warpgroups do not compute the first block of a module."""
    text = str(find_target("nvvm").pipeline(SimpleNamespace(target_options="chip=sm_90a")))  # type: ignore[misc]
    Pipeline(f"{text[: text.index(',schedule{')]})").run(module, Session(), [])
    (function,) = [f for f in prim_functions(module.operation) if is_tensor_form(f)]
    view = PrimView(function)
    group = BlockGroup(tuple(view.blocks), frozenset(view.returned), LANES)
    return str(warpgroup.plan_warpgroups(product_of(group), parse_options("chip=sm_90a")))


def run(kind: str, result: str, size: tuple[int, int, int], transposed: str, options: str = "") -> Any:
    """Return the kernel's result and the operands."""
    m, n, k = size
    a, b = values(kind, m, k), values(kind, k, n)
    given = [np.ascontiguousarray(x.T if side in transposed else x) for x, side in ((a, "a"), (b, "b"))]
    shapes = [f"{x.shape[0]}x{x.shape[1]}" for x in given]
    text = product((shapes[0], kind), (shapes[1], kind), f"{m}x{n}", result, transposed)
    bytes_ = [x.view(np.int8) if x.itemsize == 1 else x for x in given]
    found, schedules = run_on_emulator(text, bytes_, f"chip=sm_90a {options}", RESULTS[result])
    assert "warpgroups" in schedules, schedules
    return found, a, b


@pytest.mark.sample(0)
@pytest.mark.parametrize("transposed", ["", "a", "b", "ab"])
@pytest.mark.parametrize("kind", HALVES)
def test_halves_in_any_order(kind: str, transposed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelined, "best_tile", lambda *_: warpgroup.WarpgroupTile(1, 64, 1.0))
    found, a, b = run(kind, kind, (136, 72, 152), transposed)
    wanted = a.astype(np.float32) @ b.astype(np.float32)
    assert np.abs(found.astype(np.float32) - wanted).max() <= 2.0**-7 * np.abs(wanted).max()


@pytest.mark.sample(0)
@pytest.mark.parametrize("tile", warpgroup.TILES, ids=lambda t: f"{t.height}x{t.width}x{t.together}")
def test_tiles(tile: warpgroup.WarpgroupTile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelined, "best_tile", lambda *_: tile)
    found, a, b = run("f16", "f32", (130, 264, 72), "b" if tile.width == 192 else "")
    np.testing.assert_allclose(found, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-5, atol=1e-4)


@pytest.mark.sample(0)
@pytest.mark.parametrize("transposed", ["", "b"])
def test_clusters_go_on_to_the_next_tiles(transposed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHIPS, "sm_90a", replace(CHIPS["sm_90a"], units=2))
    monkeypatch.setattr(pipelined, "best_tile", lambda *_: warpgroup.WarpgroupTile(1, 128, 1.0, together=2))
    found, a, b = run("f16", "f32", (320, 200, 584), transposed)
    np.testing.assert_allclose(found, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-4, atol=1e-3)


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    ("kind", "result", "options"),
    [("i8", "i32", ""), ("f8E4M3FN", "f32", ""), ("f8E5M2", "f32", ""), ("f32", "f32", "tf32=true")],
)
def test_other_formats(kind: str, result: str, options: str) -> None:
    found, a, b = run(kind, result, (128, 128, 272), "b", options)
    wide = RESULTS[result]
    a, b = (rounded_to_tf32(x) if kind == "f32" else x.astype(DTYPES[kind]).astype(wide) for x in (a, b))
    np.testing.assert_allclose(found, a @ b, rtol=1e-5, atol=1e-4)


def test_batches_and_epilogues() -> None:
    x, y, z = values("f16", 3, 72, 40), values("f16", 40, 64), values("f16", 64)
    text = """func.func @main(%0: tensor<3x72x40xf16>, %1: tensor<40x64xf16>, %2: tensor<64xf16>)
    -> tensor<3x72x64xf16> {
  %p = "relax.matmul"(%0, %1) : (tensor<3x72x40xf16>, tensor<40x64xf16>) -> tensor<3x72x64xf16>
  %s = "relax.add"(%p, %2) : (tensor<3x72x64xf16>, tensor<64xf16>) -> tensor<3x72x64xf16>
  %y = "relax.relu"(%s) : (tensor<3x72x64xf16>) -> tensor<3x72x64xf16>
  return %y : tensor<3x72x64xf16>
}"""
    found, schedules = run_on_emulator(text, [x, y, z], "chip=sm_90a")
    assert "warpgroups" in schedules
    wanted = np.maximum(x.astype(np.float32) @ y.astype(np.float32) + z.astype(np.float32), 0)
    np.testing.assert_allclose(found.astype(np.float32), wanted, rtol=2e-3, atol=2e-2)


def test_convolutions_of_one_pixel() -> None:
    x, w = values("f16", 2, 9, 10, 64), values("f16", 64, 64)
    text = """func.func @main(%0: tensor<2x9x10x64xf16>, %1: tensor<64x64xf16>) -> tensor<2x9x10x64xf16> {
  %y = "relax.matmul"(%0, %1) : (tensor<2x9x10x64xf16>, tensor<64x64xf16>) -> tensor<2x9x10x64xf16>
  return %y : tensor<2x9x10x64xf16>
}"""
    found, schedules = run_on_emulator(text, [x, w], "chip=sm_90a")
    assert "warpgroups" in schedules
    wanted = x.astype(np.float32) @ w.astype(np.float32)
    np.testing.assert_allclose(found.astype(np.float32), wanted, rtol=2e-3, atol=2e-2)


@pytest.mark.sample(0)
@pytest.mark.parametrize(("tile", "strides"), [(-1, 1), (0, 2), (3, 1)])
def test_convolutions_are_gathered(tile: int, strides: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelined, "best_tile", lambda *_: warpgroup.TILES[tile])
    monkeypatch.setattr(products, "whole_waves_if_faster", lambda plan, *_: plan)
    high, wide = (9 - 1) // strides + 1, (10 - 1) // strides + 1
    given, made = "tensor<3x9x10x40xf16>", f"tensor<3x{high}x{wide}x72xf16>"
    text = f"""func.func @main(%0: {given}, %1: tensor<3x3x40x72xf16>) -> {made} {{
  %p = "relax.conv"(%0, %1) {{padding = array<i64: 1, 1, 1, 1>, strides = array<i64: {strides}, {strides}>,
    data_layout = "N*C", kernel_layout = "*IO"}} : ({given}, tensor<3x3x40x72xf16>) -> {made}
  %y = "relax.relu"(%p) : ({made}) -> {made}
  return %y : {made}
}}"""
    x, w = values("f16", 3, 9, 10, 40), values("f16", 3, 3, 40, 72)
    found, schedules = run_on_emulator(text, [x, w], "chip=sm_90a")
    assert "warpgroups" in schedules
    padded = np.pad(x.astype(np.float32), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::strides, ::strides]
    wanted = np.maximum(np.einsum("nyxcrs,rsco->nyxo", windows, w.astype(np.float32)), 0)
    assert np.abs(found.astype(np.float32) - wanted).max() <= 1e-3 * wanted.max()


@pytest.mark.sample(0)
def test_rounded_convolutions_are_left_to_warps(driver: FakeDriver) -> None:
    kernel = values("f32", 64, 32, 3, 3) / 8

    @mirlo.script
    def image(x: R.Tensor[(2, 32, 12, 12), R.f32]):
        return R.conv(x, R.const(kernel), padding=[1, 1, 1, 1])

    compiled = mirlo.compile(image, target="nvvm{chip=sm_90a tf32=true}", cache=False)
    assert b"wgmma" not in compiled.artifact.code and b"cvt.rna.tf32" in compiled.artifact.code
    (x,) = compiled.random_inputs().values()
    padded = np.pad(rounded_to_tf32(x), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    wanted = np.einsum("ncyxrs,ocrs->noyx", windows, rounded_to_tf32(kernel))
    np.testing.assert_allclose(compiled(x), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.sample(0)
@needs_ptxas()
def test_large_convolutions_are_gathered_without_spills(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    given, made = "tensor<32x56x56x256xbf16>", "tensor<32x56x56x256xbf16>"
    text = f"""func.func @main(%0: {given}, %1: tensor<3x3x256x256xbf16>) -> {made} {{
  %p = "relax.conv"(%0, %1) {{padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO"}} :
    ({given}, tensor<3x3x256x256xbf16>) -> {made}
  return %p : {made}
}}"""
    with make_context(), ir.Location.unknown():
        ptx = ptx_of_module(ir.Module.parse(text), "sm_90a")
    assert "m64n256k16" in ptx and "multicast::cluster" in ptx and ptx.count("cp.async.cg.shared.global") % 8 == 0
    made_of_it = run_ptxas(ptx, find_chip("sm_90a"))
    assert (made_of_it.spilled_bytes, made_of_it.warnings) == (0, ())


@pytest.mark.sample(0)
@needs_ptxas()
@pytest.mark.parametrize(
    ("kind", "result", "transposed", "options", "instruction"),
    [
        ("bf16", "bf16", "", "", "m64n256k16.f32.bf16.bf16"), ("f16", "f16", "ab", "", "m64n256k16.f32.f16.f16"),
        ("i8", "i32", "b", "", "m64n256k32.s32.s8.s8"), ("f8E4M3FN", "f32", "b", "", "m64n256k32.f32.e4m3.e4m3"),
        ("f32", "f32", "b", "tf32=true", "m64n256k8.f32.tf32.tf32"),
    ],
)  # fmt: skip
def test_large_products_are_asynchronous_without_spills(
    kind: str, result: str, transposed: str, options: str, instruction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    text = product(("8192x8192", kind), ("8192x8192", kind), "8192x8192", result, transposed)
    with make_context(), ir.Location.unknown():
        ptx = ptx_of_module(ir.Module.parse(text), "sm_90a", options)
    assert f"wgmma.mma_async.sync.aligned.{instruction}" in ptx
    assert "cp.async.bulk.tensor.2d" in ptx and "setmaxnreg.inc.sync.aligned.u32 \t232" in ptx
    assert ".reqnctapercluster 2, 1, 1" in ptx and "multicast::cluster" in ptx
    assert ".maxnreg 168" in ptx and ptx.count(".param .align 128 .b8") == 2, "maps are passed by value"
    # Slots are released once a step: a fence for the whole GPU there, as the scope of a cluster means, takes longer.
    assert ptx.count("mbarrier.arrive.shared::cluster.b64 _") and "arrive.release.cluster.shared" not in ptx
    made = run_ptxas(ptx, find_chip("sm_90a"))
    assert (made.spilled_bytes, made.warnings) == (0, ())


@pytest.mark.parametrize(
    ("left", "right", "result", "reason"),
    [
        ("128x100xf16", "100x128xf16", "128x128xf16", "a factor's lines do not begin at multiples of 16 bytes"),
        ("128x64xi8", "64x128xi8", "128x128xi32", "which warpgroups support only in 16 bits"),
    ],
)
def test_others_say_why_not(left: str, right: str, result: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    lhs, rhs = ((text.rsplit("x", 1)[0], text.rsplit("x", 1)[1]) for text in (left, right))
    shape, kind = result.rsplit("x", 1)
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(product(lhs, rhs, shape, kind))
        reasons = why_not(module)
    assert reason in reasons, reasons
