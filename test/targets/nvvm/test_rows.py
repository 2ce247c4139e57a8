"""Rows on target nvvm: shuffles and accesses of 16 bytes, executed by the emulator of PTX, and assembled."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from assembled import needs_ptxas, ptx_of_module
from devices import needs_vulkan
from executed import run_on_emulator

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.targets.nvvm.chips import find_chip
from mirlo.targets.nvvm.ptxas import run_ptxas
from mirlo.testing.ptx.driver import emulated

DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def softmax(kind: str) -> str:
    return f"""func.func @main(%0: tensor<{kind}>) -> tensor<{kind}> {{
  %y = "relax.softmax"(%0) {{axis = -1 : i64}} : (tensor<{kind}>) -> tensor<{kind}>
  return %y : tensor<{kind}>
}}"""


def expected(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True).astype(np.float64))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((3, 1024), "f32"), ((5, 1000), "f16"), ((37, 33), "f32"), ((130, 64), "bf16"), ((2, 9001), "f32")],
)
def test_softmax(shape: tuple[int, int], dtype: str) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(DTYPES[dtype])
    found, schedule = run_on_emulator(softmax(f"{shape[0]}x{shape[1]}x{dtype}"), [x])
    assert 'stages = "rows"' in schedule
    np.testing.assert_allclose(found.astype(np.float64), expected(x), atol=1e-6 if dtype == "f32" else 4e-3)


@pytest.mark.parametrize(("dtype", "result"), [("i64", np.int64), ("i32", np.int32), ("f64", np.float64)])
def test_sums_of_wide_and_whole_numbers(dtype: str, result: type) -> None:
    x = np.random.default_rng(0).integers(-(1 << 20), 1 << 20, (3, 260)).astype(result)
    text = f"""func.func @main(%0: tensor<3x260x{dtype}>) -> tensor<3x{dtype}> {{
  %y = "relax.reduce_sum"(%0) {{axes = array<i64: 1>}} : (tensor<3x260x{dtype}>) -> tensor<3x{dtype}>
  return %y : tensor<3x{dtype}>
}}"""
    found, _ = run_on_emulator(text, [x])
    np.testing.assert_array_equal(found, x.sum(1))


@needs_ptxas()
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_accesses_are_whole(dtype: str) -> None:
    with make_context(), ir.Location.unknown():
        ptx = ptx_of_module(ir.Module.parse(softmax(f"4096x1024x{dtype}")), "sm_80")
    accesses = [line for line in ptx.splitlines() if ".global." in line and ("ld." in line or "st." in line)]
    assert accesses and all(".v4.b32" in line or ".v2.b64" in line for line in accesses), accesses
    assert ptx.count("shfl.sync.bfly") >= 10 and ptx.count("bar.sync") <= 5
    assert run_ptxas(ptx, find_chip("sm_80")).spilled_bytes == 0


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("columns", [768, 1024, 4096])
def test_accesses_of_normalizations_are_whole(dtype: str, columns: int) -> None:
    rows, row = f"tensor<4096x{columns}x{dtype}>", f"tensor<{columns}x{dtype}>"
    text = f"""func.func @main(%0: {rows}, %1: {row}, %2: {row}) -> {rows} {{
  %y = "relax.layer_norm"(%0, %1, %2) {{
    axis = 1 : i64, epsilon = 1.0e-5 : f64, operandSegmentSizes = array<i32: 1, 1, 1>
  }} : ({rows}, {row}, {row}) -> {rows}
  return %y : {rows}
}}"""
    with make_context(), ir.Location.unknown():
        ptx = ptx_of_module(ir.Module.parse(text), "sm_80")
    accesses = [line for line in ptx.splitlines() if ".global." in line and ("ld." in line or "st." in line)]
    assert accesses and all(".v4.b32" in line for line in accesses), accesses


DYNAMIC = """func.func @main(%0: tensor<?x?xf32, #relax.dims<["n", "m"]>>)
    -> (tensor<?x?xf32, #relax.dims<["n", "m"]>>, tensor<?xf32, #relax.dims<["n"]>>) {
  %y = "relax.softmax"(%0) {axis = -1 : i64} : (tensor<?x?xf32, #relax.dims<["n", "m"]>>)
    -> tensor<?x?xf32, #relax.dims<["n", "m"]>>
  %z = "relax.reduce_max"(%0) {axes = array<i64: 1>, keepdims = false}
    : (tensor<?x?xf32, #relax.dims<["n", "m"]>>) -> tensor<?xf32, #relax.dims<["n"]>>
  return %y, %z : tensor<?x?xf32, #relax.dims<["n", "m"]>>, tensor<?xf32, #relax.dims<["n"]>>
}"""


@pytest.mark.parametrize("target", ["nvvm", pytest.param("spirv", marks=needs_vulkan())])
def test_rows_of_dynamic_length(target: str) -> None:
    with emulated("sm_80"), make_context():
        f = mirlo.compile(ir.Module.parse(DYNAMIC), target, cache=False)
        for shape in ((3, 70), (1, 1), (2, 300)):
            x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
            y, z = f(x)
            np.testing.assert_allclose(y, expected(x), atol=1e-6)
            np.testing.assert_array_equal(z, x.max(1))
