"""Elementwise kernels of nvvm read and write 16 bytes at a time, with correct results."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from assembled import ptx_of_module
from executed import run_on_emulator

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.targets.nvvm.schedule import wide


def add(left: str, right: str) -> str:
    return f"""func.func @main(%0: tensor<{left}>, %1: tensor<{right}>) -> tensor<{left}> {{
  %y = "relax.add"(%0, %1) : (tensor<{left}>, tensor<{right}>) -> tensor<{left}>
  return %y : tensor<{left}>
}}"""


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
def test_accesses_are_whole(dtype: str) -> None:
    with make_context(), ir.Location.unknown():
        ptx = ptx_of_module(ir.Module.parse(add(f"512x512x{dtype}", f"512x512x{dtype}")), "sm_80")
    accesses = [line for line in ptx.splitlines() if ".global." in line and ("ld." in line or "st." in line)]
    assert len(accesses) == 3 and all(".v4.b32" in line or ".v2.b64" in line for line in accesses), accesses


@pytest.mark.parametrize(("shape", "other"), [((300, 256), (300, 256)), ((300, 252), (252,)), ((70, 1001), (70, 1))])
def test_results(shape: tuple[int, ...], other: tuple[int, ...]) -> None:
    generator = np.random.default_rng(0)
    x, y = (generator.standard_normal(size).astype(ml_dtypes.bfloat16) for size in (shape, other))
    left, right = ("x".join(map(str, (*size, "bf16"))) for size in (shape, other))
    found, _ = run_on_emulator(add(left, right), [x, y])
    np.testing.assert_array_equal(found, x + y)


@pytest.mark.parametrize(("operator", "runs"), [("relu", 4), ("gelu", 2)])
def test_reads_are_in_flight_together(operator: str, runs: int) -> None:
    kind = "tensor<4096x4096xf32>"
    text = f"""func.func @main(%0: {kind}) -> {kind} {{
  %y = "relax.{operator}"(%0) : ({kind}) -> {kind}
  return %y : {kind}
}}"""
    with make_context(), ir.Location.unknown():
        ptx = ptx_of_module(ir.Module.parse(text), "sm_90a")
    before, _, _ = ptx.partition("div.rn" if operator == "gelu" else "max.NaN")
    assert before.count("ld.global.v4.b32") == runs == ptx.count("st.global.v4.b32")


@pytest.mark.parametrize(("rows", "dtype"), [(64, "f32"), (96, "bf16")])
def test_runs(rows: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide, "MIN_BLOCKS", 1)
    monkeypatch.setattr(wide, "MIN_ELEMENTS", 1)
    generator = np.random.default_rng(1)
    kind = np.float32 if dtype == "f32" else ml_dtypes.bfloat16
    x, y = (generator.standard_normal(size).astype(kind) for size in ((rows, 512), (512,)))
    found, _ = run_on_emulator(add(f"{rows}x512x{dtype}", f"512x{dtype}"), [x, y])
    np.testing.assert_array_equal(found, x + y)
