"""Products of all formats executed from their PTX, with a look-out for races, in sizes with several tiles and edges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.targets.nvvm.chips import CHIPS
from mirlo.testing.ptx.driver import emulated

NUMPY: dict[str, Any] = {
    "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "ui8": np.uint8,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2,
}  # fmt: skip
RESULTS = {"f32": "f32", "f16": "f16", "bf16": "bf16", "i8": "i32", "ui8": "i32", "f8E4M3FN": "f32", "f8E5M2": "f32"}
TOLERANCE = {"f32": 2e-3, "f16": 2e-3, "bf16": 2e-2}
"""Of the largest number; f32 is rounded to tf32."""


@pytest.fixture(autouse=True)
def few_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chips with four units: a block has several tiles, sums are long enough for one part."""
    for name, found in list(CHIPS.items()):
        monkeypatch.setitem(CHIPS, name, replace(found, units=4))


def values(kind: str, *shape: int) -> np.ndarray:
    generator = np.random.default_rng(sum(shape))
    if kind in ("i8", "ui8"):
        info = np.iinfo(NUMPY[kind])
        return generator.integers(info.min, info.max, shape, endpoint=True).astype(NUMPY[kind])
    return generator.standard_normal(shape, dtype=np.float32).astype(NUMPY[kind])


def tensor(array: np.ndarray, kind: str) -> str:
    return f"tensor<{'x'.join(map(str, array.shape))}x{kind}>"


def multiply(kind: str, size: tuple[int, int, int], transposed: str, target: str) -> None:
    """Check that a product, its operands in `transposed` given transposed, agrees with numpy's."""
    m, n, k = size
    a, b = values(kind, m, k), values(kind, k, n)
    given = [np.ascontiguousarray(x.T if side in transposed else x) for x, side in ((a, "a"), (b, "b"))]
    lines, names = "", []
    for i, (x, side) in enumerate(((a, "a"), (b, "b"))):
        names.append(f"%t{i}" if side in transposed else f"%{i}")
        if side in transposed:
            kinds = f"({tensor(given[i], kind)}) -> {tensor(x, kind)}"
            lines += f'  %t{i} = "relax.permute"(%{i}) {{axes = array<i64: 1, 0>}} : {kinds}\n'
    result = f"tensor<{m}x{n}x{RESULTS[kind]}>"
    text = f"""func.func @main(%0: {tensor(given[0], kind)}, %1: {tensor(given[1], kind)}) -> {result} {{
{lines}  %p = "relax.matmul"({", ".join(names)}) {{out_dtype = {RESULTS[kind]}}} :
    ({tensor(a, kind)}, {tensor(b, kind)}) -> {result}
  return %p : {result}
}}"""
    with make_context():
        compiled = mirlo.compile(ir.Module.parse(text), target=target, cache=False)
    exact = np.int64 if RESULTS[kind] == "i32" else np.float64
    wanted, found = a.astype(exact) @ b.astype(exact), compiled(*given).astype(exact)
    tolerance = TOLERANCE.get(kind, 0.0 if exact is np.int64 else 1e-5)
    assert np.abs(found - wanted).max() <= tolerance * np.abs(wanted).max()


WARP = {
    "f16": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "bf16": "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "i8": "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
    "ui8": "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32",
    "f8E4M3FN": "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32",
    "f8E5M2": "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32",
    "f32": "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
}  # fmt: skip
WARPGROUP = {
    "f16": "k16.f32.f16.f16", "bf16": "k16.f32.bf16.bf16", "i8": "k32.s32.s8.s8", "ui8": "k32.s32.u8.u8",
    "f8E4M3FN": "k32.f32.e4m3.e4m3", "f8E5M2": "k32.f32.e5m2.e5m2", "f32": "k8.f32.tf32.tf32",
}  # fmt: skip
"""The instruction that is to multiply, or its end."""
IN_ANY_ORDER = ("f16", "bf16")


@pytest.mark.sample(6)
@pytest.mark.parametrize("transposed", ["", "b", "a"])
@pytest.mark.parametrize("kind", WARP)
def test_warps(kind: str, transposed: str) -> None:
    chip = "sm_89" if kind.startswith("f8") else "sm_80"
    with emulated(chip, races=True) as gpu:
        multiply(kind, (72, 40, 88), transposed, f"nvvm{{chip={chip} tf32=true}}")
    assert WARP[kind] in gpu.opcodes


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    ("kind", "transposed"), [*((kind, "b") for kind in WARPGROUP), *((k, t) for k in IN_ANY_ORDER for t in ("", "a"))]
)
def test_warpgroups(kind: str, transposed: str) -> None:
    with emulated("sm_90a", races=True) as gpu:
        multiply(kind, (264, 256, 160), transposed, "nvvm{chip=sm_90a tf32=true}")
    assert any(opcode.startswith("wgmma.mma_async") and opcode.endswith(WARPGROUP[kind]) for opcode in gpu.opcodes)
