"""What warpgroups write, from their PTX: whole lines by way of shared memory, of whatever follows the product."""

from __future__ import annotations

import numpy as np
import pytest
from assembled import needs_ptxas, ptx_of_module

import mirlo
from mirlo import R
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.targets.gpu.schedule.launch import WARP
from mirlo.targets.nvvm.chips import find_chip
from mirlo.targets.nvvm.ptxas import run_ptxas
from mirlo.targets.nvvm.schedule import pipelined, results, warpgroup
from mirlo.testing.ptx.driver import emulated


@mirlo.script
def biased(x: R.Tensor[(200, 128), R.bf16], y: R.Tensor[(128, 168), R.bf16], b: R.Tensor[(168,), R.bf16]):
    return R.relu(R.add(R.matmul(x, y), b))


@mirlo.script
def wide(x: R.Tensor[(200, 128), R.f16], y: R.Tensor[(128, 168), R.f16]):
    return R.matmul(x, y, out_dtype="f32")


@mirlo.script
def summed(x: R.Tensor[(200, 128), R.f16], y: R.Tensor[(128, 168), R.f16], z: R.Tensor[(200, 168), R.f16]):
    return R.add(R.matmul(x, y), z)


@mirlo.script
def apart(x: R.Tensor[(2, 72, 64), R.f16], y: R.Tensor[(2, 64, 80), R.f16]):
    return R.permute(R.reshape(R.matmul(x, y), shape=[2, 72, 5, 16]), axes=[0, 2, 1, 3])


def expected(arrays: list[np.ndarray], model: object) -> np.ndarray:
    x, y, *rest = (array.astype(np.float32) for array in arrays)
    product = x @ y
    if model is apart:
        return product.reshape(2, 72, 5, 16).transpose(0, 2, 1, 3)
    if not rest:
        return product
    return np.maximum(product + rest[0], 0) if model is biased else product + rest[0]


@pytest.mark.sample(2)
@pytest.mark.parametrize("tile", [0, 2, 7])
@pytest.mark.parametrize("model", [biased, wide, summed, apart])
def test_results(model: object, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelined, "best_tile", lambda *_: warpgroup.TILES[tile])
    with emulated("sm_90a") as driver:
        compiled = mirlo.compile(model, target="nvvm{chip=sm_90a}", cache=False)
        arrays = list(compiled.random_inputs().values())
        found = compiled(*arrays).astype(np.float32)
        del compiled
    assert driver.launched
    exact = expected(arrays, model)
    assert np.abs(found - exact).max() <= (1e-4 if model is wide else 2**-7 * np.abs(exact).max())


@pytest.mark.sample(0)
@needs_ptxas()
@pytest.mark.parametrize("tile", range(len(warpgroup.TILES)))
@pytest.mark.parametrize(("columns", "dtype", "after"), [(4096, "f16", "br"), (768, "bf16", "b"), (768, "bf16", "bg")])
def test_products_are_asynchronous_whatever_follows(
    after: str, columns: int, dtype: str, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelined, "best_tile", lambda *_: warpgroup.TILES[tile])
    left, right, made = (f"tensor<{shape}x{dtype}>" for shape in ("4096x1024", f"1024x{columns}", f"4096x{columns}"))
    row = f"tensor<{columns}x{dtype}>"
    steps = {
        "b": f'%b = "relax.add"(%p, %3) : ({made}, {row}) -> {made}',
        "r": f'%r = "relax.add"(%b, %2) : ({made}, {made}) -> {made}',
        "g": f'%g = "relax.gelu"(%b) : ({made}) -> {made}',
    }
    body = "\n  ".join(steps[step] for step in after)
    text = f"""func.func @main(%0: {left}, %1: {right}, %2: {made}, %3: {row}) -> {made} {{
  %p = "relax.matmul"(%0, %1) {{out_dtype = {dtype}}} : ({left}, {right}) -> {made}
  {body}
  return %{after[-1] if after else "p"} : {made}
}}"""
    with make_context(), ir.Location.unknown():
        ptx = ptx_of_module(ir.Module.parse(text), "sm_90a")
    assembled = run_ptxas(ptx, find_chip("sm_90a"))
    assert "wgmma" in ptx and (assembled.spilled_bytes, assembled.warnings) == (0, ())


@pytest.mark.sample(0)
def test_accesses_are_whole_lines() -> None:
    kind = "tensor<4096x4096xbf16>"
    text = f"""func.func @main(%0: {kind}, %1: {kind}) -> {kind} {{
  %y = "relax.matmul"(%0, %1) {{out_dtype = bf16}} : ({kind}, {kind}) -> {kind}
  return %y : {kind}
}}"""
    with make_context(), ir.Location.unknown():
        ptx = ptx_of_module(ir.Module.parse(text), "sm_90a")
    assert ptx.count("st.global.v4.b32") == ptx.count("st.global") == ptx.count("ld.shared.v4.b32") == 16
    assert ptx.count("bar.warp.sync") == 2 * 4
    # The first product begins anew, so that no register is written between the fence and its use.
    assert ptx.count("setp.ne.b32 p, 0, 0") == 1


@pytest.mark.parametrize(("size", "pitch"), list(results.PITCHES.items()))
def test_banks(size: int, pitch: int) -> None:
    # As many threads at a time as have 128 bytes: pairs of neighbours are written, 16 bytes are read.
    for width, place in (
        (2 * size, lambda lane: lane // 4 * pitch + lane % 4 * 2 * size),
        (16, lambda lane: lane // 8 * pitch + lane % 8 * 16),
    ):
        for first in range(0, WARP, 128 // width):
            words = [(place(lane) + i) // 4 for lane in range(first, first + 128 // width) for i in range(0, width, 4)]
            assert len({word % 32 for word in words}) == len(words)
