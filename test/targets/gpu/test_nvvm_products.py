"""Products large enough for the matrix units, tiles copied ahead and clusters, on a GPU: each format and layout."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from devices import needs_cuda

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context

pytestmark = needs_cuda()

DTYPES: dict[str, Any] = {
    "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "ui8": np.uint8,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2,
}  # fmt: skip
RESULTS = {"f32": "f32", "f16": "f16", "bf16": "bf16", "i8": "i32", "ui8": "i32", "f8E4M3FN": "f32", "f8E5M2": "f32"}
TOLERANCE = {"f32": 1e-5, "f16": 2e-3, "bf16": 2e-2, "i8": 0.0, "ui8": 0.0, "f8E4M3FN": 5e-3, "f8E5M2": 5e-3}
"""Of the largest number; sums of 8-bit floats keep fewer bits on the way."""
SIZES = [(1024, 1024, 512), (2048, 768, 1000), (1000, 520, 72), (640, 4096, 4096)]


def values(kind: str, *shape: int) -> np.ndarray:
    generator = np.random.default_rng(sum(shape))
    if kind in ("i8", "ui8"):
        info = np.iinfo(DTYPES[kind])
        return generator.integers(info.min, info.max, shape, endpoint=True).astype(DTYPES[kind])
    return generator.standard_normal(shape, dtype=np.float32).astype(DTYPES[kind])


def tensor(array: np.ndarray, kind: str) -> str:
    return f"tensor<{'x'.join(map(str, array.shape))}x{kind}>"


def check_product(kind: str, size: tuple[int, int, int], transposed: str, options: str = "") -> None:
    """Multiply on the GPU, the factors in `transposed` given transposed, and compare with numpy."""
    m, n, k = size
    a, b = values(kind, m, k), values(kind, k, n)
    # f64 holds these sums of integers, and multiplies them in a thousandth of numpy's time for integers.
    wide = np.float64 if kind == "f32" or RESULTS[kind] == "i32" else np.float32
    wanted = a.astype(wide) @ b.astype(wide)
    given = [np.ascontiguousarray(x.T if side in transposed else x) for x, side in ((a, "a"), (b, "b"))]
    lines, names = [], []
    for i, (x, side) in enumerate(((a, "a"), (b, "b"))):
        names.append(f"%t{i}" if side in transposed else f"%{i}")
        if side in transposed:
            kinds = f"({tensor(given[i], kind)}) -> {tensor(x, kind)}"
            lines.append(f'  %t{i} = "relax.permute"(%{i}) {{axes = array<i64: 1, 0>}} : {kinds}')
    result = f"tensor<{m}x{n}x{RESULTS[kind]}>"
    body = "\n".join(lines)
    text = f"""func.func @main(%0: {tensor(given[0], kind)}, %1: {tensor(given[1], kind)}) -> {result} {{
{body}
  %p = "relax.matmul"({", ".join(names)}) {{out_dtype = {RESULTS[kind]}}} :
    ({tensor(a, kind)}, {tensor(b, kind)}) -> {result}
  return %p : {result}
}}"""
    with make_context():
        compiled = mirlo.compile(ir.Module.parse(text), target=f"nvvm{{{options}}}" if options else "nvvm", cache=False)
    found = compiled(*given).astype(wide)
    tolerance = 2e-3 if "tf32" in options else TOLERANCE[kind]
    assert np.abs(found - wanted).max() <= tolerance * np.abs(wanted).max()


@pytest.mark.parametrize("transposed", ["", "a", "b", "ab"])
@pytest.mark.parametrize("kind", DTYPES)
def test_formats_and_layouts(kind: str, transposed: str) -> None:
    for size in SIZES:
        check_product(kind, size, transposed)


@pytest.mark.parametrize("transposed", ["", "b"])
def test_rounded_floats(transposed: str) -> None:
    for size in SIZES:
        check_product("f32", size, transposed, "tf32=true")


@pytest.mark.parametrize("options", ["chip=sm_80", "chip=sm_89"])
def test_code_for_older_chips(options: str) -> None:
    for kind in ("f16", "i8", "f32"):
        check_product(kind, SIZES[0], "b", options)


@pytest.mark.parametrize(("kind", "strides"), [("f16", 1), ("bf16", 2), ("f32", 1)])
def test_convolutions(kind: str, strides: int, images: int = 8, pixels: int = 28, channels: int = 128) -> None:
    x, w = values(kind, images, pixels, pixels, channels), values(kind, 3, 3, channels, channels)
    side = (pixels - 1) // strides + 1
    result = f"tensor<{images}x{side}x{side}x{channels}x{kind}>"
    text = f"""func.func @main(%0: {tensor(x, kind)}, %1: {tensor(w, kind)}) -> {result} {{
  %y = "relax.conv"(%0, %1) {{padding = array<i64: 1, 1, 1, 1>, strides = array<i64: {strides}, {strides}>,
    data_layout = "N*C", kernel_layout = "*IO"}} : ({tensor(x, kind)}, {tensor(w, kind)}) -> {result}
  return %y : {result}
}}"""
    with make_context():
        compiled = mirlo.compile(ir.Module.parse(text), target="nvvm", cache=False)
    padded = np.pad(x.astype(np.float32), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::strides, ::strides]
    wanted = np.tensordot(windows, w.astype(np.float32), ((3, 4, 5), (2, 0, 1)))
    found = compiled(x, w).astype(np.float32)
    assert np.abs(found - wanted).max() <= TOLERANCE[kind] * np.abs(wanted).max()
