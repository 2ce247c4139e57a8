"""Elementwise kernels of nvvm read and write 16 bytes at a time, and compute what they should."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from assembled import ptx_of_module
from interpreted import run_on_interpreter

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context


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
    found, _ = run_on_interpreter(add(left, right), [x, y])
    np.testing.assert_array_equal(found, x + y)
