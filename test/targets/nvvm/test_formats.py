"""Products of bytes, 8-bit floats and rounded f32 on the matrix units: executed by the emulator, and assembled."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from assembled import needs_ptxas, ptx_of_module
from executed import run_on_emulator
from rounded import rounded_to_tf32

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.targets.nvvm.chips import find_chip
from mirlo.targets.nvvm.ptxas import run_ptxas
from mirlo.testing.ptx.driver import emulated

DTYPES = {
    "i8": np.int8, "ui8": np.uint8, "f32": np.float32,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2,
}  # fmt: skip
SIZES = [(40, 48, 96), (50, 30, 37)]
TF32 = "chip=sm_80 tf32=true"
"""Options of the target."""


def product(left: tuple[str, str], right: tuple[str, str], result: str, kind: str, transposed: str = "") -> str:
    """Return a module that multiplies two matrices, of these shapes and types; `transposed` names operands."""
    lines, names = [], ["%0", "%1"]
    shapes = [left, right]
    for i, side in enumerate("ab"):
        if side in transposed:
            shape = "x".join(reversed(shapes[i][0].split("x")))
            before, after = (f"tensor<{s}x{shapes[i][1]}>" for s in (shapes[i][0], shape))
            lines.append(f'  %t{i} = "relax.permute"({names[i]}) {{axes = array<i64: 1, 0>}} : ({before}) -> {after}')
            shapes[i], names[i] = (shape, shapes[i][1]), f"%t{i}"
    given = [f"tensor<{shape}x{element}>" for shape, element in (left, right)]
    used = [f"tensor<{shape}x{element}>" for shape, element in shapes]
    body = "\n".join(lines)
    return f"""func.func @main(%0: {given[0]}, %1: {given[1]}) -> tensor<{result}x{kind}> {{
{body}
  %p = "relax.matmul"({names[0]}, {names[1]}) {{out_dtype = {kind}}} : ({used[0]}, {used[1]}) -> tensor<{result}x{kind}>
  return %p : tensor<{result}x{kind}>
}}"""


def values(kind: str, *shape: int) -> np.ndarray:
    generator = np.random.default_rng(sum(shape))
    if kind in ("i8", "ui8"):
        low, high = (-128, 128) if kind == "i8" else (0, 256)
        return generator.integers(low, high, shape).astype(DTYPES[kind])
    return generator.standard_normal(shape).astype(DTYPES[kind])


def run(left: str, right: str, kind: str, size: tuple[int, int, int], options: str, transposed: str = "") -> Any:
    """Return the kernel's result, numpy's, and the schedule."""
    m, n, k = size
    a, b = values(left, m, k), values(right, k, n)
    given = [np.ascontiguousarray(x.T if side in transposed else x) for x, side in ((a, "a"), (b, "b"))]
    shapes = [f"{x.shape[0]}x{x.shape[1]}" for x in given]
    text = product((shapes[0], left), (shapes[1], right), f"{m}x{n}", kind, transposed)
    bytes_ = [x.view(np.int8) if x.itemsize == 1 else x for x in given]
    result = {"i32": np.int32, "f32": np.float32}[kind]
    found, schedules = run_on_emulator(text, bytes_, options, result)
    assert "tensor cores" in schedules
    return found, a, b


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("left", "right", "transposed"), [("i8", "i8", ""), ("ui8", "i8", "b"), ("i8", "ui8", "a"), ("ui8", "ui8", "ab")]
)
def test_bytes_are_exact(left: str, right: str, transposed: str) -> None:
    for size in SIZES:
        found, a, b = run(left, right, "i32", size, "chip=sm_80", transposed)
        np.testing.assert_array_equal(found, a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize("kind", ["f8E4M3FN", "f8E5M2"])
def test_floats_of_eight_bits(kind: str) -> None:
    for size in SIZES:
        found, a, b = run(kind, kind, "f32", size, "chip=sm_89")
        np.testing.assert_allclose(found, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-5, atol=1e-4)


@pytest.mark.sample(2)
@pytest.mark.parametrize("transposed", ["", "a", "b", "ab"])
def test_floats_are_rounded_where_asked_for(transposed: str) -> None:
    for size in SIZES:
        found, a, b = run("f32", "f32", "f32", size, TF32, transposed)
        exact, wanted = a @ b, rounded_to_tf32(a) @ rounded_to_tf32(b)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-5)
        assert np.abs(found - exact).max() > 1e-4, "nothing was rounded"


@pytest.mark.parametrize("transposed", ["a", "b"])
def test_rounded_floats_that_are_copied_without_ldmatrix(transposed: str) -> None:
    """Where both factors lie along the lines, positions are converted by `cp.async` alone: to 64 bits, as elsewhere."""
    a, b = values("f32", 64, 64), values("f32", 64, 64)
    text = product(("64x64", "f32"), ("64x64", "f32"), "64x64", "f32", transposed)
    with emulated("sm_80"):
        with make_context():
            compiled = mirlo.compile(ir.Module.parse(text), target=f"nvvm{{{TF32}}}", cache=False)
        found = compiled(*(np.ascontiguousarray(x.T if side in transposed else x) for x, side in ((a, "a"), (b, "b"))))
    np.testing.assert_allclose(found, rounded_to_tf32(a) @ rounded_to_tf32(b), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("options", ["chip=sm_80", "chip=sm_90a"])
def test_floats_keep_their_bits_where_nothing_is_asked_for(options: str) -> None:
    a, b = values("f32", 64, 64), values("f32", 64, 64)
    text = product(("64x64", "f32"), ("64x64", "f32"), "64x64", "f32")
    found, schedules = run_on_emulator(text, [a, b], options)
    assert "tensor cores" not in schedules
    np.testing.assert_allclose(found, a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.sample(4)
@needs_ptxas()
@pytest.mark.parametrize(
    ("left", "right", "kind", "chip", "options", "instruction"),
    [
        ("i8", "i8", "i32", "sm_80", "", "m16n8k32.row.col.s32.s8.s8.s32"),
        ("ui8", "i8", "i32", "sm_100", "", "m16n8k32.row.col.s32.u8.s8.s32"),
        ("f8E4M3FN", "f8E4M3FN", "f32", "sm_89", "", "m16n8k32.row.col.f32.e4m3.e4m3.f32"),
        ("f8E5M2", "f8E5M2", "f32", "sm_100", "", "m16n8k32.row.col.f32.e5m2.e5m2.f32"),
        ("f32", "f32", "f32", "sm_80", "tf32=true", "m16n8k8.row.col.f32.tf32.tf32.f32"),
    ],
)
def test_large_products_use_the_matrix_units_without_spills(
    left: str, right: str, kind: str, chip: str, options: str, instruction: str
) -> None:
    text = product(("4096x4096", left), ("4096x4096", right), "4096x4096", kind, "b")
    with make_context(), ir.Location.unknown():
        ptx = ptx_of_module(ir.Module.parse(text), chip, options)
    assert f"mma.sync.aligned.{instruction}" in ptx and "cp.async.cg.shared.global" in ptx
    assert run_ptxas(ptx, find_chip(chip)).spilled_bytes == 0
