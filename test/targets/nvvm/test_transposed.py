"""Elementwise kernels that read across how they write turn tiles in shared memory."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from assembled import needs_ptxas, ptx_of_module
from executed import run_on_emulator

import mirlo
from mirlo import R, T
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.targets.nvvm.chips import find_chip
from mirlo.targets.nvvm.ptxas import run_ptxas
from mirlo.targets.nvvm.schedule import transposed
from mirlo.testing.ptx.driver import emulated

KINDS = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "f64": np.float64}


def permuted(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str, add: bool = False) -> str:
    """Return a permutation, to which another tensor is added."""
    made = tuple(shape[axis] for axis in axes)
    given, result = (f"tensor<{'x'.join(map(str, dims))}x{dtype}>" for dims in (shape, made))
    order = ", ".join(map(str, axes))
    sum_ = f'%y = "relax.add"(%t, %1) : ({result}, {result}) -> {result}' if add else ""
    return f"""func.func @main(%0: {given}{f", %1: {result}" if add else ""}) -> {result} {{
  %t = "relax.permute"(%0) {{axes = array<i64: {order}>}} : ({given}) -> {result}
  {sum_}
  return {"%y" if add else "%t"} : {result}
}}"""


def example(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(-99, 99, shape).astype(KINDS[dtype])


@pytest.mark.sample(6)
@pytest.mark.parametrize("edge", transposed.EDGES)
@pytest.mark.parametrize(
    ("shape", "axes", "dtype"),
    [
        ((128, 192), (1, 0), "f32"), ((70, 131), (1, 0), "f32"), ((3, 40, 66), (0, 2, 1), "bf16"),
        ((2, 17, 5, 33), (0, 2, 3, 1), "i8"), ((40, 3, 50), (2, 1, 0), "f64"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("add", [False, True])
def test_results(
    shape: tuple[int, ...], axes: tuple[int, ...], dtype: str, edge: int, add: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transposed, "MIN_BLOCKS", 1)
    monkeypatch.setattr(transposed, "EDGES", (edge,))
    x = example(shape, dtype)
    y = example(x.transpose(axes).shape, dtype)
    found, schedules = run_on_emulator(permuted(shape, axes, dtype, add), [x, y] if add else [x])
    np.testing.assert_array_equal(found, x.transpose(axes) + y if add else x.transpose(axes))
    assert "transposed" in schedules


@pytest.mark.parametrize("shape", [(64, 128), (64, 70), (33, 64)], ids=str)
def test_bodies_that_use_indices(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of a tile have one address and offsets; what a body computes of an index has the offset too."""
    monkeypatch.setattr(transposed, "MIN_BLOCKS", 1)
    rows, columns = shape

    @mirlo.prim_func
    def numbered(a: T.Buffer[(columns, rows), T.f32], c: T.Out[(rows, columns), T.f32]):
        for i, j in T.grid(rows, columns):
            with T.block("numbered"):
                vi, vj = T.axes("SS", i, j)
                c[vi, vj] = a[vj, vi] + T.f32(vi) * 1000.0 + T.f32(vj)

    @mirlo.script
    def model(a: R.Tensor[(columns, rows), R.f32]):
        return R.call_tir(numbered, a)

    x = example((columns, rows), "f32")
    with emulated("sm_80", races=True):
        found = mirlo.compile(model, "nvvm{chip=sm_80}", cache=False)(x)
    np.testing.assert_array_equal(found, x.T + 1000 * np.arange(rows, dtype=np.float32)[:, None] + np.arange(columns))


@needs_ptxas()
def test_one_piece_of_memory_for_neighbours() -> None:
    with make_context(), ir.Location.unknown():
        ptx = ptx_of_module(ir.Module.parse(permuted((4096, 4096), (1, 0), "f32")), "sm_90a")
    assert ptx.count("ld.global") == ptx.count("st.global") == transposed.EDGES[0] ** 2 // transposed.THREADS
    before, _, after = ptx.partition("bar.sync")
    assert "ld.global" not in after and "st.global" not in before
    made = run_ptxas(ptx, find_chip("sm_90a"))
    assert made.spilled_bytes == 0 and made.registers <= 32


@pytest.mark.parametrize(("bytes_", "pitch"), [(1, 68), (2, 66), (4, 65), (8, 65)])
def test_columns_of_tiles_lie_in_different_banks(bytes_: int, pitch: int) -> None:
    assert pitch == 64 + max(1, transposed.BANK // bytes_)
    threads = range(16 if bytes_ == 8 else 32)  # half a warp at a time where numbers are two banks wide
    words = [{(thread * pitch * bytes_ + i) // 4 for i in range(0, bytes_, 4)} for thread in threads]
    banks = [word % 32 for found in words for word in found]
    assert len(set(banks)) == len(banks)
