"""Weights that are streamed from memory: the next ones are prefetched during the computation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernels import Kernel
from onnx_models import F32, make_model, node

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.pipeline import Pipeline
from mirlo.targets.llvm.machine import Machine
from mirlo.tools.explain.model import explain_model

SMALL_CACHE = Machine("small cache", 64, 32, masked=True, l1_bytes=4096, l2_bytes=8192)


@pytest.mark.parametrize(("m", "n", "k"), [(40, 128, 50), (33, 100, 64), (5, 96, 40)])
def test_products_from_panels(m: int, n: int, k: int) -> None:
    width = 32

    def body(p: Any, x: Any, w: Any) -> Any:
        return p.reduce("add", (m, n), (k,), lambda i, j, kk: x[i, kk] * w[j // width, kk, j % width])

    generator = np.random.default_rng(0)
    x = generator.standard_normal((m, k)).astype(np.float32)
    w = generator.standard_normal((-(-n // width), k, width)).astype(np.float32)
    kernel = Kernel(body, [(x.shape, "f32"), (w.shape, "f32")], SMALL_CACHE)
    want = x @ w.transpose(1, 0, 2).reshape(k, -1)[:, :n]
    np.testing.assert_allclose(kernel(x, w), want, rtol=1e-4, atol=1e-4)
    # Several tiles fetch the next panel for the second cache; a tile that is alone fetches its own for the first.
    assert ("locality<2>" in kernel.text) == (m > 16)
    assert ("locality<3>" in kernel.text) == (m <= 16)


@pytest.mark.parametrize(("l1_bytes", "is_fetched"), [(1024, True), (8192, False)])
def test_blocks_of_rows_fetch_panels_of_weights_beyond_l1(l1_bytes: int, is_fetched: bool) -> None:
    m, n, k, width = 301, 128, 32, 32
    machine = Machine("small cache", 64, 32, masked=True, l1_bytes=l1_bytes, l2_bytes=1 << 16)

    def body(p: Any, x: Any, w: Any) -> Any:
        return p.reduce("add", (m, n), (k,), lambda i, j, kk: x[i, kk] * w[j // width, kk, j % width])

    generator = np.random.default_rng(0)
    x = generator.standard_normal((m, k)).astype(np.float32)
    w = generator.standard_normal((n // width, k, width)).astype(np.float32)
    kernel = Kernel(body, [(x.shape, "f32"), (w.shape, "f32")], machine)
    assert "row_block" in kernel.schedule
    assert ("locality<2>" in kernel.text) == is_fetched
    want = x @ w.transpose(1, 0, 2).reshape(k, -1)
    np.testing.assert_allclose(kernel(x, w), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [48, 256, 1000])
def test_a_row_by_weights_in_panels(n: int) -> None:
    """Panels count whether the columns fill them or not: none of them is a row of the tile."""
    k, width = 70, 128 if n > 128 else n

    def body(p: Any, x: Any, w: Any) -> Any:
        return p.reduce("add", (1, n), (k,), lambda i, j, kk: x[i, kk] * w[j // width, kk, j % width])

    generator = np.random.default_rng(0)
    x = generator.standard_normal((1, k)).astype(np.float32)
    w = generator.standard_normal((-(-n // width), k, width)).astype(np.float32)
    kernel = Kernel(body, [(x.shape, "f32"), (w.shape, "f32")], SMALL_CACHE)
    want = x @ w.transpose(1, 0, 2).reshape(k, -1)[:, :n]
    np.testing.assert_allclose(kernel(x, w), want, rtol=1e-4, atol=1e-4)
    assert f"tile = array<i64: 1, {min(n, 128)}>" in kernel.schedule
    assert kernel.text.count("locality<3>") >= 1


@pytest.mark.parametrize(("size", "is_fetched"), [(56, True), (7, False)])
def test_large_residuals_are_fetched_before_the_sums(size: int, is_fetched: bool) -> None:
    text = f"""
      func.func @main(%x: tensor<1x{size}x{size}x64xf32>, %w: tensor<1x1x64x256xf32>,
                      %r: tensor<1x{size}x{size}x256xf32>) -> tensor<1x{size}x{size}x256xf32> {{
        %0 = "relax.conv"(%x, %w) {{data_layout = "N*C", kernel_layout = "*IO"}}
          : (tensor<1x{size}x{size}x64xf32>, tensor<1x1x64x256xf32>) -> tensor<1x{size}x{size}x256xf32>
        %1 = "relax.add"(%0, %r) : (tensor<1x{size}x{size}x256xf32>, tensor<1x{size}x{size}x256xf32>)
          -> tensor<1x{size}x{size}x256xf32>
        return %1 : tensor<1x{size}x{size}x256xf32>
      }}"""
    passes = "legalize,annotate-kinds,fuse-ops,fuse-tir,schedule{machine=avx512}"
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        Pipeline(passes).run(module)
        assert ("memref.prefetch" in str(module)) == is_fetched


@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "neoverse-n1"])
def test_panels_that_any_number_of_rows_reads(cpu: str) -> None:
    """How much of the next panel a tile fetches depends on a size at run time, how many instructions do so cannot."""
    model = make_model(
        [node("MatMul", "x w", "y")], {"x": (F32, ("m", 512))}, ["y"], {"w": np.ones((512, 4096), np.float32)}
    )
    compiled = explain_model(model, f"llvm{{cpu={cpu}}}", kernel="matmul")
    (kernel,) = compiled.kernels
    assert kernel.schedule is not None
    assert kernel.schedule.rule is not None
    assert kernel.schedule.rule.name == "contraction", kernel.schedule
