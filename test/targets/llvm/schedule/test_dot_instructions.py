"""Products of bytes and of bf16 by the instructions that sum up several: all signs, sizes, ways to lie in memory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from presets import compile_for

from mirlo.runtime.params import ParameterStore
from mirlo.targets.llvm.options import find_machine
from mirlo.targets.llvm.schedule.cost import MIN_ROWS_TO_EXTEND

RELAX = {"u8": "ui8", "i8": "i8", "bf16": "bf16"}
SHAPES = [(8, 16, 32), (7, 13, 19), (33, 70, 45), (20, 3, 9), (40, 4, 100)]
"""Rows, products, columns."""
CPUS = ("", "x86-64-v3", "cascadelake", "cooperlake")
"""The host, for numbers, and processors without VNNI, with it, and with products of bf16, whose code is looked at."""
WITHOUT_VNNI = ("x86-64-v3", "x86-64-v4")


def _random(dtype: str, *shape: int) -> np.ndarray:
    random = np.random.default_rng(3)
    if dtype == "bf16":
        return random.standard_normal(shape).astype(ml_dtypes.bfloat16)
    info = np.iinfo({"u8": np.uint8, "i8": np.int8}[dtype])
    return random.integers(info.min, info.max + 1, shape).astype(info.dtype)


def _never_run(*arrays: np.ndarray) -> None:
    """Stand for code that this processor lacks instructions for."""


def _compiled(text: str, folder: Path, cpu: str = "", **params: np.ndarray) -> tuple[Any, str]:
    """Return the executable, or `_never_run` if this processor lacks instructions, and the notes of its schedules."""
    path = folder / "given.mlir"
    path.write_text(text)
    store = ParameterStore()
    for name, array in params.items():
        store.add(name, array)
    made, runs = compile_for(cpu, str(path), save_ir=folder / "ir", params=store)
    return made if runs else _never_run, next((folder / "ir").glob("*-schedule.mlir")).read_text()


def _uses(schedule: str, dots: str, instruction: str, cpu: str) -> bool:
    """Return whether the instruction was taken where the machine has it (and the lanes do not run along the sum)."""
    if not cpu:
        return True
    machine = find_machine(f"cpu={cpu}")
    has_it = dots in machine.dots and (dots != "bf16" or machine.has_fast_bf16)
    return (f'instruction = "{instruction}"' in schedule) == has_it


def _equals(found: np.ndarray | None, expected: np.ndarray) -> None:
    if found is not None:
        np.testing.assert_array_equal(found, expected)


def _matmul(m: int, k: int, n: int, left: str, right: str, out: str, transposed: bool, is_constant: bool) -> str:
    shape = f"{n}x{k}" if transposed else f"{k}x{n}"
    weight = f"tensor<{shape}x{RELAX[right]}>"
    given = "" if is_constant else f", %w: {weight}"
    constant = f'%w = "relax.constant"() {{param = "w"}} : () -> {weight}' if is_constant else ""
    x, y = f"tensor<{m}x{k}x{RELAX[left]}>", f"tensor<{m}x{n}x{out}>"
    flag = str(transposed).lower()
    return f"""func.func @main(%x: {x}{given}) -> {y} {{
      {constant}
      %0 = "relax.matmul"(%x, %w) {{out_dtype = {out}, transpose_rhs = {flag}}} : ({x}, {weight}) -> {y}
      return %0 : {y}
    }}"""


@pytest.mark.sample(0)
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize(("left", "right"), [("u8", "i8"), ("i8", "i8"), ("i8", "u8"), ("u8", "u8")])
def test_products_of_bytes(left: str, right: str, is_constant: bool, cpu: str, tmp_path: Path) -> None:
    for i, (m, k, n) in enumerate(SHAPES[1:3] if cpu else SHAPES):
        transposed = i % 2 == 1
        x, w = _random(left, m, k), _random(right, *((n, k) if transposed else (k, n)))
        folder = tmp_path / str(i)
        folder.mkdir()
        text = _matmul(m, k, n, left, right, "i32", transposed, is_constant)
        made, schedule = _compiled(text, folder, cpu, **({"w": w} if is_constant else {}))
        found = made(x) if is_constant else made(x, w)
        _equals(found, x.astype(np.int32) @ (w.T if transposed else w).astype(np.int32))
        assert "dot = true" in schedule or _uses(schedule, "u8xi8", "vpdpbusd", cpu)


@pytest.mark.sample(0)
@pytest.mark.parametrize("cpu", WITHOUT_VNNI)
@pytest.mark.parametrize(("left", "right"), [("u8", "i8"), ("i8", "i8"), ("u8", "u8")])
def test_products_of_bytes_without_vnni(left: str, right: str, cpu: str, tmp_path: Path) -> None:
    for i, (m, k, n) in enumerate([(33, 70, 45), (20, 3, 9), (1, 64, 32)]):
        x, w = _random(left, m, k), _random(right, k, n)
        folder = tmp_path / str(i)
        folder.mkdir()
        made, schedule = _compiled(_matmul(m, k, n, left, right, "i32", False, True), folder, cpu, w=w)
        _equals(made(x), x.astype(np.int32) @ w.astype(np.int32))
        assert 'instruction = "vpmaddwd"' in schedule
        # Dynamic weights, also those whose columns are contiguous, are packed in groups by the kernel.
        for transposed in (False, True):
            folder = tmp_path / f"{i}{transposed}"
            folder.mkdir()
            given = np.ascontiguousarray(w.T) if transposed else w
            made, _ = _compiled(_matmul(m, k, n, left, right, "i32", transposed, False), folder, cpu)
            _equals(made(x, given), x.astype(np.int32) @ w.astype(np.int32))


LIMITS = {"i8": [(64, 64), (-64, -64), (127, -128), (1, 127), (-128, 0)], "u8": [(128, 128), (255, 1), (0, 255)]}
"""Adjacent weights whose products with any int8 of the other sign fit 16 bits, just so."""


@pytest.mark.sample(0)
@pytest.mark.parametrize("cpu", WITHOUT_VNNI)
@pytest.mark.parametrize(("left", "right"), [("u8", "i8"), ("i8", "i8"), ("i8", "u8"), ("u8", "u8")])
def test_pairs_that_fit_16_bits(left: str, right: str, cpu: str, tmp_path: Path) -> None:
    """Constant weights prove that `vpmaddubsw` does not saturate; a larger pair in one column is enough for another."""
    m, k, n = 40, 72, 50
    info = np.iinfo({"u8": np.uint8, "i8": np.int8}[left])
    x = np.random.default_rng(1).choice(np.asarray([info.min, info.max], info.dtype), (m, k))
    x[0], x[1] = info.min, info.max
    pairs = np.asarray(LIMITS[right], {"u8": np.uint8, "i8": np.int8}[right])
    w = pairs[np.random.default_rng(2).integers(0, len(pairs), (n, k // 2))].reshape(n, k)
    w[: len(pairs)] = np.tile(pairs, (1, k // 2))
    for instruction in ("vpmaddubsw", "vpmaddwd"):
        folder = tmp_path / instruction
        folder.mkdir()
        transposed = np.ascontiguousarray(w.T)
        made, schedule = _compiled(_matmul(m, k, n, left, right, "i32", False, True), folder, cpu, w=transposed)
        _equals(made(x), x.astype(np.int32) @ transposed.astype(np.int32))
        assert f'instruction = "{instruction}"' in schedule
        w[-1, 6:8] = (65, 64) if right == "i8" else (129, 128)


@pytest.mark.sample(0)
@pytest.mark.parametrize("cpu", WITHOUT_VNNI)
@pytest.mark.parametrize(("left", "right"), [("u8", "i8"), ("i8", "i8"), ("i8", "u8"), ("u8", "u8")])
def test_extended_panels(left: str, right: str, cpu: str, tmp_path: Path) -> None:
    """Without VNNI panels of constant columns are extended to int16 in a copy for many rows, in registers for fewer."""
    k, n = 36, 50
    for m in (MIN_ROWS_TO_EXTEND - 1, MIN_ROWS_TO_EXTEND + 3):
        x, w = _random(left, m, k), _random(right, k, n)
        w[:, 0], w[:, 1] = np.iinfo(w.dtype).min, np.iinfo(w.dtype).max
        x[0], x[1] = np.iinfo(x.dtype).min, np.iinfo(x.dtype).max
        folder = tmp_path / str(m)
        folder.mkdir()
        executable, schedule = _compiled(_matmul(m, k, n, left, right, "i32", False, True), folder, cpu, w=w)
        _equals(executable(x), x.astype(np.int32) @ w.astype(np.int32))
        assert 'instruction = "vpmaddwd"' in schedule
        assert re.search(r"memref<[0-9x]+x2xi8>", schedule)
        assert ("packed = true" in schedule) == (m >= MIN_ROWS_TO_EXTEND)


@pytest.mark.sample(4)
@pytest.mark.parametrize("cpu", ["", *WITHOUT_VNNI])
@pytest.mark.parametrize(("data", "weight"), [("u8", "i8"), ("i8", "i8"), ("i8", "u8"), ("u8", "u8")])
def test_depthwise(data: str, weight: str, cpu: str, tmp_path: Path) -> None:
    """Products of single int8 are those of 16-bit halves of lanes, of any signs."""
    channels = 40
    x, w = _random(data, 1, 9, 11, channels), _random(weight, 3, 3, 1, channels)
    x[0, :3], x[0, 3:5] = np.iinfo(x.dtype).min, np.iinfo(x.dtype).max
    kinds = [f"tensor<{'x'.join(map(str, shape))}x{kind}>" for shape, kind in (
        (x.shape, RELAX[data]), (w.shape, RELAX[weight]), (x.shape, "i32"),
    )]  # fmt: skip
    text = f"""func.func @main(%x: {kinds[0]}) -> {kinds[2]} {{
      %w = "relax.constant"() {{param = "w"}} : () -> {kinds[1]}
      %0 = "relax.conv"(%x, %w) {{out_dtype = i32, data_layout = "N*C", kernel_layout = "*IO",
        groups = {channels} : i64, padding = array<i64: 1, 1, 1, 1>}} : ({kinds[0]}, {kinds[1]}) -> {kinds[2]}
      return %0 : {kinds[2]}
    }}"""
    executable, _ = _compiled(text, tmp_path, cpu, w=w)
    padded = np.pad(x.astype(np.int32), [(0, 0), (1, 1), (1, 1), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    _equals(executable(x), np.einsum("nhwcij,ijc->nhwc", windows, w[:, :, 0].astype(np.int32)))


@pytest.mark.sample(0)
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("is_constant", [False, True])
def test_products_of_bf16(is_constant: bool, cpu: str, tmp_path: Path) -> None:
    for i, (m, k, n) in enumerate(SHAPES[1:3] if cpu else SHAPES):
        transposed = i % 2 == 1
        x, w = _random("bf16", m, k), _random("bf16", *((n, k) if transposed else (k, n)))
        folder = tmp_path / str(i)
        folder.mkdir()
        text = _matmul(m, k, n, "bf16", "bf16", "f32", transposed, is_constant)
        made, schedule = _compiled(text, folder, cpu, **({"w": w} if is_constant else {}))
        found = made(x) if is_constant else made(x, w)
        expected = x.astype(np.float64) @ (w.T if transposed else w).astype(np.float64)
        if found is not None:
            np.testing.assert_allclose(found, expected, atol=1e-5 * k, rtol=0)
        assert "dot = true" in schedule or _uses(schedule, "bf16", "vdpbf16ps", cpu)


CONVOLUTIONS = {
    "3x3": ((2, 8, 9, 11), (20, 8, 3, 3), "padding = array<i64: 1, 1, 1, 1>"),
    "strided": ((1, 3, 12, 12), (16, 3, 5, 5), "strides = array<i64: 2, 2>"),
    "1x1": ((1, 12, 5, 7), (17, 12, 1, 1), ""),
    "grouped": ((1, 16, 6, 6), (32, 8, 3, 3), "groups = 2 : i64, padding = array<i64: 1, 1, 1, 1>"),
}


@pytest.mark.sample(0)
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("signs", ["u8", "i8"])
@pytest.mark.parametrize("name", list(CONVOLUTIONS))
def test_convolutions_of_bytes(name: str, signs: str, cpu: str, tmp_path: Path) -> None:
    data, kernel, attributes = CONVOLUTIONS[name]
    x, w = _random(signs, *data), _random("i8", *kernel)
    expected = _convolution(x, w, attributes)
    kinds = [f"tensor<{'x'.join(map(str, shape))}x{kind}>" for shape, kind in (
        (data, RELAX[signs]), (kernel, "i8"), (expected.shape, "i32"),
    )]  # fmt: skip
    given = "{" + ", ".join(filter(None, ("out_dtype = i32", attributes))) + "}"
    text = f"""func.func @main(%x: {kinds[0]}) -> {kinds[2]} {{
      %w = "relax.constant"() {{param = "w"}} : () -> {kinds[1]}
      %0 = "relax.conv"(%x, %w) {given} : ({kinds[0]}, {kinds[1]}) -> {kinds[2]}
      return %0 : {kinds[2]}
    }}"""
    made, schedule = _compiled(text, tmp_path, cpu, w=w)
    _equals(made(x), expected)
    assert _uses(schedule, "u8xi8", "vpdpbusd", cpu)


@pytest.mark.parametrize("window", [(3, 1), (1, 3), (2, 2), (2, 1, 1), (2, 3, 1)])
@pytest.mark.parametrize("channels", [3, 4, 8])
def test_groups_of_all_channels(window: tuple[int, ...], channels: int, tmp_path: Path) -> None:
    """With as many channels as a group has, the taps of a window are the innermost loop, whose bounds skip padding."""
    random = np.random.default_rng(len(window) * channels)
    before, after = random.integers(0, np.array(window) + 1), random.integers(0, np.array(window) + 1)
    x = _random("i8", 1, *random.integers(3, 7, len(window)), channels)
    w = _random("i8", 5, *window, channels)
    padded = np.pad(x.astype(np.int32), [(0, 0), *zip(before, after, strict=True), (0, 0)])
    places = np.lib.stride_tricks.sliding_window_view(padded, window, tuple(range(1, x.ndim - 1)))
    letters = "xyz"[: len(window)]
    expected = np.einsum(f"n{letters.upper()}c{letters},o{letters}c->n{letters.upper()}o", places, w.astype(np.int32))
    kinds = [f"tensor<{'x'.join(map(str, array.shape))}x{kind}>" for array, kind in (
        (x, "i8"), (w, "i8"), (expected, "i32"),
    )]  # fmt: skip
    padding = ", ".join(map(str, (*before, *after)))
    text = f"""func.func @main(%x: {kinds[0]}) -> {kinds[2]} {{
      %w = "relax.constant"() {{param = "w"}} : () -> {kinds[1]}
      %0 = "relax.conv"(%x, %w) {{out_dtype = i32, data_layout = "N*C", kernel_layout = "O*I",
        padding = array<i64: {padding}>}} : ({kinds[0]}, {kinds[1]}) -> {kinds[2]}
      return %0 : {kinds[2]}
    }}"""
    made, _ = _compiled(text, tmp_path, w=w)
    for _ in range(3):  # elements beside the operand differ from call to call
        _equals(made(x), expected)


def _convolution(x: np.ndarray, w: np.ndarray, attributes: str) -> np.ndarray:
    """Return the sums of products, one tap after the other."""
    pad = 1 if "padding" in attributes else 0
    stride = 2 if "strides" in attributes else 1
    groups = int(re.search(r"groups = (\d+)", attributes).group(1)) if "groups" in attributes else 1  # type: ignore[union-attr]
    wide = np.pad(x.astype(np.int32), [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    rows, columns = ((size - window) // stride + 1 for size, window in zip(wide.shape[2:], w.shape[2:], strict=True))
    made = np.zeros((x.shape[0], w.shape[0], rows, columns), np.int32)
    for data, kernel, out in zip(
        np.split(wide, groups, 1), np.split(w.astype(np.int32), groups, 0), np.split(made, groups, 1), strict=True
    ):
        for i, j in np.ndindex(*w.shape[2:]):
            part = data[:, :, i : i + stride * rows : stride, j : j + stride * columns : stride][:, :, :rows, :columns]
            out += np.einsum("nchw,oc->nohw", part, kernel[:, :, i, j])
    return made


@pytest.mark.sample(0)
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(("left", "right", "out", "dots", "instruction"), [
    ("u8", "i8", "i32", "u8xi8", "vpdpbusd"), ("i8", "i8", "i32", "u8xi8", "vpdpbusd"),
    ("bf16", "bf16", "f32", "bf16", "vdpbf16ps"),
])  # fmt: skip
def test_rows_of_run_time(
    left: str, right: str, out: str, dots: str, instruction: str, cpu: str, tmp_path: Path
) -> None:
    """How many rows there are is known when the kernel is called."""
    k, n = 70, 45
    w = _random(right, k, n)
    x, y = (f'tensor<?x{size}x{kind}, #relax.dims<["rows", {size}]>>' for size, kind in ((k, RELAX[left]), (n, out)))
    weight = f"tensor<{k}x{n}x{RELAX[right]}>"
    text = f"""func.func @main(%x: {x}) -> {y} {{
      %w = "relax.constant"() {{param = "w"}} : () -> {weight}
      %0 = "relax.matmul"(%x, %w) {{out_dtype = {out}}} : ({x}, {weight}) -> {y}
      return %0 : {y}
    }}"""
    made, schedule = _compiled(text, tmp_path, cpu, w=w)
    for rows in (1, 3, 40):
        given = _random(left, rows, k)
        wide = np.float64 if out == "f32" else np.int64
        found = made(given)
        if found is not None:
            np.testing.assert_allclose(found, given.astype(wide) @ w.astype(wide), atol=1e-3, rtol=0)
    assert _uses(schedule, dots, instruction, cpu)
