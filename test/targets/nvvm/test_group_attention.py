"""Attention by warpgroups: executed by the emulator of PTX, and assembled with ptxas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from assembled import needs_ptxas, ptx_of_module
from attention_cases import CASES, Case, reference
from executed import run_on_emulator

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.targets.nvvm.chips import CHIPS, find_chip
from mirlo.targets.nvvm.ptxas import run_ptxas
from mirlo.targets.nvvm.schedule.attention import grouped
from mirlo.targets.nvvm.schedule.attention.mapped import GroupTile
from mirlo.testing.ptx.driver import emulated

SLACK = {"f16": 2e-3, "bf16": 1e-2}


@pytest.fixture(autouse=True)
def small_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three units: a block computes several tiles of rows."""
    monkeypatch.setitem(CHIPS, "sm_90a", replace(CHIPS["sm_90a"], units=3))


def check(case: Case, dtype: str = "f16") -> str:
    """Compile and run it; its schedule."""
    arrays = case.arrays(dtype)
    found, schedule = run_on_emulator(case.text(dtype), arrays, "chip=sm_90a")
    assert '"attention on warpgroups"' in schedule, schedule
    np.testing.assert_allclose(found.astype(np.float64), case.expected(arrays), rtol=SLACK[dtype], atol=SLACK[dtype])
    return schedule


def with_tile(monkeypatch: pytest.MonkeyPatch, *tile: int) -> None:
    monkeypatch.setattr(grouped, "choose_tile", lambda *_: GroupTile(*tile))


KINDS = {
    "causal": Case((1, 2, 300, 64), (1, 2, 300, 64), 64, causal=True),
    "all keys": Case((1, 2, 200, 32), (1, 2, 300, 32), 32),
    "causal, fewer keys than rows": Case((1, 2, 200, 32), (1, 2, 70, 32), 32, causal=True),
    "causal, behind a cache": Case((1, 2, 100, 32), (1, 2, 300, 32), 32, causal=True, at_end=True),
    "rows that see no key": Case((1, 2, 200, 32), (1, 2, 90, 32), 32, (1, 2, 200, 90), causal=True, at_end=True),
    "grouped, causal": Case((2, 4, 90, 32), (2, 2, 90, 32), 32, causal=True),
    "grouped, a mask of each head": Case((1, 4, 60, 16), (1, 2, 130, 16), 16, (1, 4, 60, 130)),
    "a mask for all rows": Case((2, 3, 64, 32), (2, 3, 100, 32), 32, (2, 1, 1, 100)),
    "bool mask": Case((1, 3, 90, 16), (1, 3, 90, 16), 16, (90, 90), "i1"),
    "another scale": Case((1, 2, 70, 48), (1, 2, 70, 48), 48, scale=0.3),
    "heads that 16 does not divide": Case((1, 3, 70, 24), (1, 3, 90, 24), 40),
    "values larger than keys": Case((1, 3, 64, 32), (1, 3, 128, 32), 136),
    "tokens before heads": Case((2, 3, 150, 64), (2, 3, 150, 64), 64, causal=True, transposed=True),
    "tokens before heads, a mask": Case((2, 2, 150, 64), (2, 2, 150, 64), 64, (2, 1, 1, 150), transposed=True),
    "heads of 80": Case((1, 3, 64, 80), (1, 3, 128, 80), 80, causal=True),
}


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", KINDS)
def test_kinds(name: str) -> None:
    assert "parts = 1 " in check(KINDS[name])


@pytest.mark.sample(0)
@pytest.mark.parametrize("causal", [False, True])
def test_keys_in_parts(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped, "choose_key_splits", lambda *_: 4)
    assert "parts = 1 " not in check(Case((1, 2, 100, 16), (1, 2, 1000, 16), 24, causal=causal))


@pytest.mark.sample(0)
def test_bf16() -> None:
    check(KINDS["causal"], "bf16")


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    ("tile", "size"), [((3, 128, 2), 64), ((2, 176, 2), 128), ((1, 32, 4), 64), ((2, 80, 2), 256), ((2, 112, 2), 192)]
)
def test_tiles(tile: tuple[int, int, int], size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with_tile(monkeypatch, *tile)
    check(Case((1, 2, 200, size), (1, 2, 380, size), size, causal=True))


@pytest.mark.sample(0)
def test_blocks_have_several_tiles_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some more than others, of several heads, forwards and backwards."""
    with_tile(monkeypatch, 1, 32, 3)
    check(Case((2, 2, 200, 16), (2, 2, 200, 16), 16, causal=True))


@pytest.mark.sample(0)
def test_what_follows_is_part_of_it() -> None:
    """A residual of f32: numbers of 32 bits are written two at a time."""
    case = Case((1, 2, 150, 32), (1, 2, 150, 32), 32)
    arrays = [*case.arrays("f16"), np.random.default_rng(1).standard_normal((1, 2, 150, 32)).astype(np.float32)]
    kind = "tensor<1x2x150x32xf16>"
    wide = kind.replace("f16", "f32")
    text = f"""func.func @main(%q: {kind}, %k: {kind}, %v: {kind}, %x: {wide}) -> {wide} {{
      %0 = "relax.attention"(%q, %k, %v) {{causal = false}} : ({kind}, {kind}, {kind}) -> {kind}
      %1 = "relax.cast"(%0) {{dtype = f32}} : ({kind}) -> {wide}
      %2 = "relax.add"(%1, %x) : ({wide}, {wide}) -> {wide}
      return %2 : {wide}
    }}"""
    found, schedule = run_on_emulator(text, arrays, "chip=sm_90a", np.float32)
    assert 'stages = "attention on warpgroups"' in schedule, schedule
    np.testing.assert_allclose(found, case.expected(arrays[:3]) + arrays[3], rtol=2e-3, atol=2e-3)


def packed(tokens: int, heads: int, size: int) -> str:
    """Causal attention of queries, keys and values that one product made: parts of a tensor."""
    x, part = f"tensor<2x{tokens}x{3 * heads}x{size}xf16>", f"tensor<2x{tokens}x{heads}x{size}xf16>"
    kind = f"tensor<2x{heads}x{tokens}x{size}xf16>"
    parts = "\n".join(
        f"""%s{i} = "relax.strided_slice"(%x) {{axes = array<i64: 2>, begin = array<i64: {i * heads}>,
              end = array<i64: {(i + 1) * heads}>, strides = array<i64: 1>}} : ({x}) -> {part}
            %t{i} = "relax.permute"(%s{i}) {{axes = array<i64: 0, 2, 1, 3>}} : ({part}) -> {kind}"""
        for i in range(3)
    )
    return f"""func.func @main(%x: {x}) -> {part} {{
      {parts}
      %0 = "relax.attention"(%t0, %t1, %t2) {{causal = true}} : ({kind}, {kind}, {kind}) -> {kind}
      %1 = "relax.permute"(%0) {{axes = array<i64: 0, 2, 1, 3>}} : ({kind}) -> {part}
      return %1 : {part}
    }}"""


def expected_of_packed(x: np.ndarray) -> np.ndarray:
    q, k, v = np.split(x.swapaxes(1, 2), 3, 1)
    return reference(q, k, v, None, None, 0).swapaxes(1, 2)


@pytest.mark.sample(0)
def test_parts_of_one_tensor() -> None:
    x = np.random.default_rng(0).standard_normal((2, 150, 6, 64)).astype(np.float16)
    found, schedule = run_on_emulator(packed(150, 2, 64), [x], "chip=sm_90a")
    assert 'stages = "attention on warpgroups"' in schedule, schedule
    np.testing.assert_allclose(found.astype(np.float64), expected_of_packed(x), rtol=2e-3, atol=2e-3)


@pytest.mark.sample(0)
def test_ptx_of_parts_of_one_tensor() -> None:
    x = np.random.default_rng(0).standard_normal((2, 150, 6, 64)).astype(np.float16)
    with emulated("sm_90a") as driver:
        driver.units = 3
        with make_context():
            model = mirlo.compile(ir.Module.parse(packed(150, 2, 64)), target="nvvm{chip=sm_90a}", cache=False)
        found = model(x)
    assert b"wgmma" in model.artifact.code
    np.testing.assert_allclose(found.astype(np.float64), expected_of_packed(x), rtol=2e-3, atol=2e-3)


@pytest.mark.sample(0)
@pytest.mark.parametrize("tile", [(2, 128, 2), (3, 64, 3), (1, 32, 4)])
def test_its_ptx(tile: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Executed by the emulator of PTX: barriers, turns and products in flight as the hardware has them."""
    with_tile(monkeypatch, *tile)
    case = Case((1, 4, 330, 64), (1, 2, 330, 64), 64, causal=True)
    arrays = case.arrays("f16")
    with emulated("sm_90a") as driver:
        driver.units = 3
        with make_context():
            model = mirlo.compile(ir.Module.parse(case.text("f16")), target="nvvm{chip=sm_90a}", cache=False)
        assert b"wgmma.wait_group.sync.aligned 1" in model.artifact.code
        found = model(*arrays)
    np.testing.assert_allclose(found.astype(np.float64), case.expected(arrays), rtol=2e-3, atol=2e-3)


LARGE = {
    **{f"causal, {n}": Case((1, 16, 4096, n), (1, 16, 4096, n), n, causal=True) for n in (64, 80, 96, 128, 192, 256)},
    **{f"all keys, {n}": Case((1, 16, 4096, n), (1, 16, 4096, n), n) for n in (64, 128, 192, 256)},
    "grouped": Case((2, 32, 2048, 128), (2, 8, 2048, 128), 128, causal=True),
    "grouped, 64": Case((2, 32, 2048, 64), (2, 8, 2048, 64), 64, causal=True),
    "a mask, tiles that are not whole": Case((2, 32, 2000, 64), (2, 32, 2000, 64), 64, (2000, 2000), "i1"),
    "a mask, causal, 64": Case((2, 32, 2000, 64), (2, 32, 2000, 64), 64, (2, 1, 1, 2000), causal=True),
    "bert": Case((32, 12, 512, 64), (32, 12, 512, 64), 64, (32, 1, 1, 512)),
    "vit": Case((32, 12, 197, 64), (32, 12, 197, 64), 64),
    "bool mask": Case((2, 16, 2048, 128), (2, 16, 2048, 128), 128, (2048, 2048), "i1"),
    "a mask of each head": Case((1, 16, 2048, 64), (1, 16, 2048, 64), 64, (1, 16, 2048, 2048)),
    "tiles that are not whole": Case((2, 16, 2000, 128), (2, 16, 2001, 128), 128),
    "keys in parts": Case((1, 2, 128, 128), (1, 2, 64000, 128), 128),
}


@pytest.mark.sample(0)
@needs_ptxas()
@pytest.mark.parametrize("name", LARGE)
def test_large_without_spills(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with make_context(), ir.Location.unknown():
        ptx = ptx_of_module(ir.Module.parse(LARGE[name].text("f16")), "sm_90a")
    made = run_ptxas(ptx, find_chip("sm_90a"))
    # Serialized products would be a warning.
    assert (made.spilled_bytes, made.warnings) == (0, ())
    assert "wgmma.wait_group.sync.aligned 1" in ptx
    assert "st.global.v4.b32" in ptx or name == "keys in parts"


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (CASES["bert"], "there are too few rows for warpgroups (rows=16)"),
        (Case((1, 1, 60, 16), (1, 1, 40, 16), 16), "there are too few rows for the chip's units (rows=60)"),
    ],
)
def test_others_are_left_to_warps(case: Case, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = case.arrays("f16")
    _, schedule = run_on_emulator(case.text("f16"), arrays, "chip=sm_90a")
    assert '"attention on tensor cores"' in schedule and reason in schedule
