"""Winograd's algorithm: its matrices, convolutions against the direct way in doubles, blocks that only look like it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from presets import compile_for

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.compute import PrimBuilder, maximum
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.schedule.schedule import SchedulePrims
from mirlo.passes.session import Session
from mirlo.runtime.params import ParameterStore
from mirlo.targets.llvm.pipeline import compile_pipeline
from mirlo.targets.llvm.winograd import INPUT_BLOCK, OUTPUT_BLOCK, convert
from mirlo.targets.llvm.winograd.functions import Tiling, output_function
from mirlo.targets.llvm.winograd.matrices import (
    INPUT,
    INTEGER_INPUT,
    INTEGER_OUTPUT,
    OUTPUT,
    Operations,
    exact_quotient,
    multiply,
    transformed_integers,
    transformed_weight,
)

NUMBERS = Operations(
    lambda a, b: a + b, lambda a, b: a - b, lambda a, n: a * n, lambda x, n, y: x * n + y  # no registers
)  # fmt: skip
BOUNDS = {2: 2e-6, 4: 1e-5}
"""Largest error, of the largest result."""


@pytest.mark.parametrize("m", [2, 4])
def test_matrices_compute_a_convolution(m: int) -> None:
    rng = np.random.default_rng(0)
    tile, window = rng.standard_normal((m + 2, m + 2)), rng.standard_normal((3, 3))
    b, a = np.array(INPUT[m]), np.array(OUTPUT[m])
    products = (b @ tile @ b.T) * transformed_weight(window[..., None, None], m).reshape(m + 2, m + 2)
    want = [[(tile[i : i + 3, j : j + 3] * window).sum() for j in range(m)] for i in range(m)]
    np.testing.assert_allclose(a @ products @ a.T, want, rtol=1e-12)


@pytest.mark.parametrize("m", [2, 4])
def test_matrices_of_integers(m: int) -> None:
    """Results are exact, whatever exceeds 32 bits meanwhile: 114 channels in tiles of 4x4, 1,827 in those of 2x2."""
    channels = {2: 1827, 4: 114}[m]
    tile = np.full((m + 2, m + 2, channels), 255)
    window = np.full((3, 3, channels, 1), -128, np.int8)
    b, a = np.array(INTEGER_INPUT[m], np.int64), np.array(INTEGER_OUTPUT[m], np.int64)
    tiles = np.einsum("ir,rsc,js->ijc", b, tile, b)
    windows = transformed_integers(window, m)
    assert np.abs(tiles).max() < 1 << 15 and windows.dtype == np.int16
    products = (tiles * windows.reshape(m + 2, m + 2, channels)).sum(-1)
    factor, bits = exact_quotient(m)
    results = ((a @ products @ a.T) * factor).astype(np.uint32).astype(np.int32) >> bits
    np.testing.assert_array_equal(results, np.full((m, m), -9 * 255 * 128 * channels))


@pytest.mark.parametrize(
    "matrix", [*INPUT.values(), *OUTPUT.values(), *INTEGER_INPUT.values(), *INTEGER_OUTPUT.values()]
)
def test_products_in_few_operations(matrix: Any) -> None:
    vectors = np.random.default_rng(1).standard_normal((len(matrix[0]), 3))
    np.testing.assert_allclose(multiply(matrix, list(vectors), NUMBERS), np.array(matrix) @ vectors, rtol=1e-12)


def _reference(x: np.ndarray, w: np.ndarray, pad: tuple[int, int, int, int]) -> np.ndarray:
    x = np.pad(x.astype(np.float64), ((0, 0), (pad[0], pad[2]), (pad[1], pad[3]), (0, 0)))
    out = [x.shape[0], x.shape[1] - 2, x.shape[2] - 2, w.shape[3]]
    made = np.zeros(out)
    for r in range(3):
        for s in range(3):
            made += x[:, r : r + out[1], s : s + out[2]] @ w[r, s].astype(np.float64)
    return made


def _compiled(shape: Any, w: np.ndarray, bias: np.ndarray, pad: Any, tile: int, threads: int, residual: bool) -> Any:
    n, h, wide, c = shape
    out = f"tensor<{n}x{h + pad[0] + pad[2] - 2}x{wide + pad[1] + pad[3] - 2}x{w.shape[3]}xf32>"
    x, weight, b = f"tensor<{n}x{h}x{wide}x{c}xf32>", f"tensor<3x3x{c}x{w.shape[3]}xf32>", f"tensor<{w.shape[3]}xf32>"
    text = f"""func.func @main(%x: {x}, %r: {out}) -> {out} {{
      %w = "relax.constant"() {{param = "w"}} : () -> {weight}
      %b = "relax.constant"() {{param = "b"}} : () -> {b}
      %0 = "relax.conv"(%x, %w, %b) {{padding = array<i64: {", ".join(map(str, pad))}>, data_layout = "N*C",
        kernel_layout = "*IO", operandSegmentSizes = array<i32: 1, 1, 1>}} : ({x}, {weight}, {b}) -> {out}
      %1 = "relax.add"(%0, %r) : ({out}, {out}) -> {out}
      %2 = "relax.relu"({"%1" if residual else "%0"}) : ({out}) -> {out}
      return %2 : {out}
    }}"""
    store = ParameterStore()
    store.add("w", w)
    store.add("b", bias)

    steps = compile_pipeline(SimpleNamespace(threads=threads)).replace("winograd", f"winograd{{tile={tile}}}", 1)
    with make_context(), ir.Location.unknown():
        return mirlo.compile(ir.Module.parse(text), params=store, pipeline=steps, threads=threads)


@pytest.mark.sample(2)
@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize(
    ("shape", "out", "pad", "threads", "residual"),
    [
        ((1, 16, 16, 16), 16, (1, 1, 1, 1), 1, False),
        ((2, 13, 9, 32), 48, (1, 1, 1, 1), 2, True),
        ((1, 11, 14, 16), 32, (0, 0, 0, 0), 1, True),
        ((1, 5, 6, 32), 16, (2, 0, 1, 2), 1, False),
        ((3, 3, 3, 16), 16, (0, 0, 0, 0), 1, False),
        ((1, 30, 31, 64), 64, (1, 1, 1, 1), 2, True),
    ],
)
def test_convolutions(
    monkeypatch: Any, shape: Any, out: int, pad: Any, threads: int, residual: bool, tile: int
) -> None:
    monkeypatch.setattr(convert, "_GAIN", 1e9)
    monkeypatch.setattr(convert, "INPUT", {tile: INPUT[tile]})
    rng = np.random.default_rng(2)
    x, w, bias = (rng.standard_normal(s, dtype=np.float32) for s in (shape, (3, 3, shape[3], out), (out,)))
    executable = _compiled(shape, w, bias, pad, tile, threads, residual)
    want = _reference(x, w, pad) + bias
    r = rng.standard_normal(want.shape, dtype=np.float32)
    got = executable(x, r)
    want = np.maximum(want + r if residual else want, 0)
    assert np.abs(got - want).max() <= BOUNDS[tile] * np.abs(want).max()
    # The bias, the residual and the ReLU are computed with the transform.
    assert len(executable.artifact.kernels) == 3


@pytest.mark.sample(2)
@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize(
    ("shape", "out", "pad", "threads"),
    [((2, 9, 10, 32), 48, (1, 1, 1, 1), 2), ((3, 5, 6, 16), 16, (2, 0, 1, 2), 1), ((1, 4, 4, 32), 16, (0, 0, 0, 0), 1)],
)
def test_weights_of_the_call(monkeypatch: Any, shape: Any, out: int, pad: Any, threads: int, tile: int) -> None:
    """A convolution whose weight is an input, and the gradient of that weight."""
    monkeypatch.setattr(convert, "_GAIN", 1e9)
    monkeypatch.setattr(convert, "winograd_cycles", lambda tiling, machine: abs(tiling.m - tile))
    monkeypatch.setattr(convert, "weight_cycles", lambda tiling, machine: 0)
    rng = np.random.default_rng(7)
    x, w = (rng.standard_normal(size, dtype=np.float32) for size in (shape, (3, 3, shape[3], out)))
    want = _reference(x, w, pad)
    gradient = rng.standard_normal(want.shape, dtype=np.float32)
    padded = np.pad(x, ((0, 0), (pad[0], pad[2]), (pad[1], pad[3]), (0, 0))).astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    by_weight = np.einsum("nhwcij,nhwo->ijco", windows, gradient)
    kinds = [f"tensor<{'x'.join(map(str, array.shape))}xf32>" for array in (x, w, gradient)]
    attributes = f"""padding = array<i64: {", ".join(map(str, pad))}>, data_layout = "N*C", kernel_layout = "*IO\""""
    text = f"""func.func @main(%x: {kinds[0]}, %w: {kinds[1]}, %g: {kinds[2]}) -> ({kinds[2]}, {kinds[1]}) {{
      %0 = "relax.conv"(%x, %w) {{{attributes}}} : ({kinds[0]}, {kinds[1]}) -> {kinds[2]}
      %1 = "relax.conv_weight_gradient"(%x, %g) {{window = array<i64: 3, 3>, {attributes}}}
        : ({kinds[0]}, {kinds[2]}) -> {kinds[1]}
      return %0, %1 : {kinds[2]}, {kinds[1]}
    }}"""
    with make_context(), ir.Location.unknown():
        executable = mirlo.compile(ir.Module.parse(text), threads=threads)
    for got, expected in zip(executable(x, w, gradient), (want, by_weight), strict=True):
        assert np.abs(got - expected).max() <= 2 * BOUNDS[tile] * np.abs(expected).max()
    symbols = {kernel.symbol.rstrip("_0123456789") for kernel in executable.artifact.kernels}
    assert {"winograd_input", "winograd_output", "winograd_gradient"} <= symbols


CONVOLUTIONS = [(16, 32, 1), (16, 48, 1), (32, 48, 1), (32, 48, 0)]
"""Channels of the image and of the results, and the padding."""


@pytest.mark.parametrize(
    ("count", "transforms"), [(0, (0, 0)), (1, (1, 1)), (2, (1, 2)), (3, (2, 2)), (4, (3, 3))], ids=str
)
def test_convolutions_share_transforms(monkeypatch: Any, count: int, transforms: tuple[int, int]) -> None:
    """Transforms of images are one for any number of results, those of results for any channels of the image."""
    monkeypatch.setattr(convert, "_GAIN", 1e9)
    monkeypatch.setattr(convert, "weight_cycles", lambda tiling, machine: 0)
    convs, results, parameters = [], [], []
    for i, (channels, out, pad) in enumerate(CONVOLUTIONS[:count]):
        x, w = f"tensor<1x8x8x{channels}xf32>", f"tensor<3x3x{channels}x{out}xf32>"
        y = f"tensor<1x{6 + 2 * pad}x{6 + 2 * pad}x{out}xf32>"
        attributes = f'padding = array<i64: {pad}, {pad}, {pad}, {pad}>, data_layout = "N*C", kernel_layout = "*IO"'
        convs.append(f'%{i} = "relax.conv"(%x{i}, %w{i}) {{{attributes}}} : ({x}, {w}) -> {y}')
        parameters += [f"%x{i}: {x}", f"%w{i}: {w}"]
        results.append(y)
    ends = ", ".join(f"%{i}" for i in range(count))
    text = f"""func.func @main({", ".join(parameters)}) -> ({", ".join(results)}) {{
      {" ".join(convs)}
      return {f"{ends} : {', '.join(results)}" if count else ""}
    }}"""
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        Pipeline("builtin.module(winograd{machine=avx2 tile=2})").run(module)
        names = [str(op.operation.attributes["sym_name"]).strip('"') for op in module.body.operations]
    found = tuple(sum(name.startswith(block) for name in names) for block in (INPUT_BLOCK, OUTPUT_BLOCK))
    assert found == transforms


@pytest.mark.sample(4)
@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(("threads", "m"), [(1, 2), (2, 2), (2, 4)])
@pytest.mark.parametrize(("data", "weight"), [("ui8", "i8"), ("i8", "i8"), ("i8", "ui8"), ("ui8", "ui8")])
@pytest.mark.parametrize(
    ("shape", "out", "pad"), [((1, 14, 13, 64), 48, (1, 1, 1, 1)), ((2, 5, 6, 32), 16, (2, 0, 1, 2))]
)
def test_int8_is_exact(
    monkeypatch: Any,
    shape: Any,
    out: int,
    pad: Any,
    data: str,
    weight: str,
    threads: int,
    m: int,
    cpu: str,
    tmp_path: Path,
) -> None:
    """Extreme values, for processors without VNNI: sums of i32, which NumPy computes directly."""
    monkeypatch.setattr(convert, "_GAIN", 1e9)
    monkeypatch.setattr(convert, "winograd_cycles", lambda tiling, machine: abs(tiling.m - m))
    rng = np.random.default_rng(4)
    x, w = (
        rng.integers(info.min, info.max + 1, size).astype(info.dtype)
        for info, size in ((INT8[data], shape), (INT8[weight], (3, 3, shape[3], out)))
    )
    x[0, 0], x[0, 1:5] = INT8[data].min, INT8[data].max
    w[..., 0], w[..., 1] = INT8[weight].min, INT8[weight].max
    expected = _reference(x, w, pad).astype(np.int64)
    kinds = [f"tensor<{'x'.join(map(str, size))}x{kind}>" for size, kind in (
        (shape, data), (w.shape, weight), (expected.shape, "i32"),
    )]  # fmt: skip
    path = tmp_path / "conv.mlir"
    path.write_text(f"""func.func @main(%x: {kinds[0]}) -> {kinds[2]} {{
      %w = "relax.constant"() {{param = "w"}} : () -> {kinds[1]}
      %0 = "relax.conv"(%x, %w) {{padding = array<i64: {", ".join(map(str, pad))}>, data_layout = "N*C",
        kernel_layout = "*IO", out_dtype = i32}} : ({kinds[0]}, {kinds[1]}) -> {kinds[2]}
      return %0 : {kinds[2]}
    }}""")
    store = ParameterStore()
    store.add("w", w)
    executable, runs = compile_for(cpu, str(path), params=store, threads=threads)
    if runs:
        np.testing.assert_array_equal(executable(x), expected)
    assert len(executable.artifact.kernels) == 3


INT8 = {"i8": np.iinfo(np.int8), "ui8": np.iinfo(np.uint8)}


def _rule_of(function: Any, module: Any) -> str:
    module.body.append(function.operation)
    session = Session(options={"machine": "avx512"})
    SchedulePrims(target="llvm").run(module.operation, session)
    return str(session.notes[-1].rule.name)


def test_blocks_of_other_numbers_are_not_taken_for_transforms() -> None:
    tiling = Tiling(2, 1, (8, 8), (1, 1), (8, 8), 16, 16)
    with make_context(), ir.Location.unknown() as location:
        assert _rule_of(output_function(tiling, location), ir.Module.create()) == OUTPUT_BLOCK
        p = PrimBuilder("other", [TensorType.of(tiling.transformed(16), "f32")], location)

        def element(n: Any, h: Any, w: Any, c: Any, i: Any, j: Any) -> Any:
            return p.inputs[0].at(i, j, n, h // 2, w // 2, c) * 2.0

        made = p.reduce("add", (1, 8, 8, 16), (4, 4), element, name=OUTPUT_BLOCK)
        function = p.finish(p.compute(made.shape, lambda *at: maximum(made.at(*at), 0.0)))
        assert _rule_of(function, ir.Module.create()) not in (INPUT_BLOCK, OUTPUT_BLOCK)
