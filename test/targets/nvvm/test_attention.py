"""Attention on target nvvm: executed by the emulator of PTX, and assembled with ptxas."""

from __future__ import annotations

import numpy as np
import pytest
from assembled import needs_ptxas, ptx_of_module
from attention_cases import CASES, OPEN_CASES, OPEN_SIZES, TURNED_CASES, Case
from executed import run_on_emulator

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.targets.nvvm.chips import find_chip
from mirlo.targets.nvvm.ptxas import Assembled, run_ptxas
from mirlo.testing.ptx.fake_cuda import FakeDriver

SLACK = {"f32": 2e-6, "f16": 2e-3, "bf16": 1e-2}
ON_UNITS = {
    "causal": Case((1, 2, 80, 32), (1, 2, 80, 32), 32, causal=True),
    "heads that 16 does not divide": Case((1, 2, 50, 24), (1, 2, 70, 24), 40, (1, 2, 50, 70)),
    "keys in parts": Case((1, 1, 40, 16), (1, 1, 700, 16), 16),
    "values in parts": Case((1, 1, 20, 16), (1, 1, 40, 16), 152),
    "grouped, causal": CASES["grouped, causal"],
    "bool mask": CASES["bool mask"],
}


def check(case: Case, dtype: str) -> str:
    """Compile and run it; its schedule."""
    arrays = case.arrays(dtype)
    found, schedule = run_on_emulator(case.text(dtype), arrays)
    np.testing.assert_allclose(found.astype(np.float64), case.expected(arrays), rtol=SLACK[dtype], atol=SLACK[dtype])
    return schedule


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ON_UNITS)
def test_on_the_matrix_units(name: str) -> None:
    assert '"attention on tensor cores"' in check(ON_UNITS[name], "f16")


@pytest.mark.sample(0)
@pytest.mark.parametrize("tile", [(1, 2, 32), (2, 1, 128), (8, 1, 16)])
def test_tiles(tile: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    from mirlo.targets.nvvm.schedule import attention

    monkeypatch.setattr(attention, "choose_tile", lambda found: attention.WarpAttentionTile(*tile, 32))
    check(ON_UNITS["causal"], "f16")


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", TURNED_CASES)
def test_tokens_before_heads(name: str) -> None:
    assert 'stages = "attention on tensor cores"' in check(TURNED_CASES[name], "f16")


@pytest.mark.sample(0)
def test_bf16() -> None:
    assert '"attention on tensor cores"' in check(ON_UNITS["causal"], "bf16")


FEW = {
    "grouped": CASES["decode, grouped"],
    "a mask, keys that tiles do not divide": CASES["decode"],
    "heads that teams do not divide": Case((1, 2, 1, 80), (1, 2, 50, 80), 40),
    "keys in parts": Case((1, 3, 1, 64), (1, 1, 900, 64), 64),
    "several rows": Case((1, 2, 3, 16), (1, 2, 70, 16), 16, causal=True),
    "a long head": Case((1, 1, 1, 256), (1, 1, 40, 256), 256),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("name", FEW)
def test_few_rows(name: str, dtype: str) -> None:
    schedule = check(FEW[name], dtype)
    assert '"attention of few rows"' in schedule and ("parts = 1 " in schedule) == (name != "keys in parts")


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", ["causal", "grouped, a mask of each head", "odd"])
def test_by_sums_and_shuffles(name: str) -> None:
    assert '"attention"' in check(CASES[name], "f32")


def assembled(case: Case, dtype: str, chip: str) -> tuple[str, Assembled]:
    with make_context(), ir.Location.unknown():
        ptx = ptx_of_module(ir.Module.parse(case.text(dtype)), chip)
    return ptx, run_ptxas(ptx, find_chip(chip))


@pytest.mark.sample(0)
@needs_ptxas()
@pytest.mark.parametrize("chip", ["sm_80", "sm_89"])
@pytest.mark.parametrize(("size", "tokens"), [(64, 4096), (128, 4096), (128, 2048)])
def test_large_heads_stay_in_registers(size: int, tokens: int, chip: str) -> None:
    shape = (1, 16, tokens, size)
    ptx, kernel = assembled(Case(shape, shape, size, causal=True), "f16", chip)
    # The loop over the keys is there twice: with the bound of the mask, and without.
    assert ptx.count("mma.sync.aligned.m16n8k16") == 4 * size // 16 * 8 and "cp.async.cg.shared.global" in ptx
    assert kernel.spilled_bytes == 0 and kernel.registers <= 232 and kernel.shared_bytes <= 48 * 1024


@pytest.mark.sample(0)
@needs_ptxas()
@pytest.mark.parametrize("heads", [1, 4])
def test_decoders_read_16_bytes_at_a_time(heads: int) -> None:
    ptx, kernel = assembled(Case((1, 32, 1, 128), (1, 32 // heads, 4096, 128), 128), "f16", "sm_80")
    # Four keys and four values of each team are under way together.
    assert ptx.count("ld.global.v4.b32") >= 8 and kernel.spilled_bytes == 0 and kernel.registers <= 168


@pytest.mark.sample(0)
@needs_ptxas()
def test_by_sums_without_spills() -> None:
    shape = (1, 8, 1024, 64)
    ptx, kernel = assembled(Case(shape, shape, 64), "f32", "sm_80")
    assert "shfl.sync.bfly" in ptx and kernel.spilled_bytes == 0 and kernel.registers <= 128


@pytest.mark.sample(2)
@needs_ptxas()
@pytest.mark.parametrize("keys", [1, 5, 20, 64])
@pytest.mark.parametrize("queries", [1, 6])
def test_few_rows_of_f64_fit_registers(queries: int, keys: int) -> None:
    """Bound the keys of a thread: the values of a tile stay in registers until the last barrier is passed."""
    _, kernel = assembled(Case((1, 4, queries, 8), (1, 4, keys, 8), 6), "f64", "sm_80")
    assert kernel.spilled_bytes == 0 and kernel.registers <= 168, kernel.registers


@pytest.mark.sample(12)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("name", OPEN_CASES)
def test_lengths_of_run_time(name: str, dtype: str, driver: FakeDriver) -> None:
    """One compilation for all sizes: for one query, and for more."""
    case = OPEN_CASES[name]
    with make_context(), ir.Location.unknown():
        executable = mirlo.compile(ir.Module.parse(case.text(dtype)), target="nvvm{chip=sm_80}", cache=False)
    assert {kernel.split("::")[-1] for kernel in executable.artifact.metadata["kernels"]} == {"attention_kernel"}
    assert (b"mma.sync" in executable.artifact.code) == (dtype == "f16" and name != "one query")
    for sizes in OPEN_SIZES:
        arrays = case.at(**sizes).arrays(dtype)
        found = executable(*arrays).astype(np.float64)
        slack = SLACK[dtype]
        np.testing.assert_allclose(found, case.expected(arrays), rtol=slack, atol=slack, err_msg=str(sizes))
