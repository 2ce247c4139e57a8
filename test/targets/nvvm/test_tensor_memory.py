"""Products with accumulators in tensor memory: executed by the emulator of PTX, and assembled with ptxas."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from assembled import needs_ptxas, ptx_of_module
from test_emulated_plans import multiply
from test_formats import product

import mirlo
from mirlo import R
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.targets.nvvm.chips import CHIPS, find_chip
from mirlo.targets.nvvm.ptxas import run_ptxas
from mirlo.targets.nvvm.schedule import pipelined, tensormemory
from mirlo.testing.ptx.driver import emulated
from mirlo.testing.ptx.errors import KernelError

TARGET = "nvvm{chip=sm_100a tf32=true}"
KINDS = {
    "f16": "kind::f16", "bf16": "kind::f16", "f32": "kind::tf32", "i8": "kind::i8", "ui8": "kind::i8",
    "f8E4M3FN": "kind::f8f6f4", "f8E5M2": "kind::f8f6f4",
}  # fmt: skip


@pytest.fixture(autouse=True)
def few_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four units: a block has several tiles."""
    monkeypatch.setitem(CHIPS, "sm_100a", replace(CHIPS["sm_100a"], units=4))


def is_used(opcodes: Iterable[str], kind: str) -> bool:
    return any(opcode.startswith("tcgen05.mma") and KINDS[kind] in opcode for opcode in opcodes)


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    ("kind", "transposed"), [*((k, "b") for k in KINDS), *((k, t) for k in ("f16", "bf16") for t in ("", "a"))]
)
def test_formats(kind: str, transposed: str) -> None:
    with emulated("sm_100a", races=True) as gpu:
        multiply(kind, (264, 256, 160), transposed, TARGET)
    assert is_used(gpu.opcodes, kind)


@pytest.mark.sample(0)
@pytest.mark.parametrize("tile", tensormemory.TILES, ids=lambda tile: f"{tile.height}x{tile.width}")
def test_tiles(tile: tensormemory.WarpgroupTile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelined, "best_tile", lambda *_: tile)
    with emulated("sm_100a", races=True) as gpu:
        multiply("f16", (520, 328, 200), "b", TARGET)
    assert is_used(gpu.opcodes, "f16")


@mirlo.script
def layer(x: R.Tensor[(3, 200, 72), R.f16], w: R.Tensor[(72, 136), R.f16], b: R.Tensor[(136,), R.f16]):
    return R.relu(R.add(R.matmul(x, w), b))


@mirlo.script
def image(x: R.Tensor[(2, 16, 16, 64), R.f16], w: R.Tensor[(3, 3, 64, 128), R.f16]):
    return R.conv(x, w, padding=[1, 1, 1, 1], data_layout="N*C", kernel_layout="*IO")


@pytest.mark.sample(0)
def test_epilogues() -> None:
    with emulated("sm_100a", races=True) as gpu:
        compiled = mirlo.compile(layer, target=TARGET, cache=False)
        x, w, b = compiled.random_inputs().values()
        found = compiled(x, w, b).astype(np.float32)
    assert is_used(gpu.opcodes, "f16")
    wanted = np.maximum(x.astype(np.float32) @ w.astype(np.float32) + b.astype(np.float32), 0)
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-3 * wanted.max())


def test_convolutions() -> None:
    with emulated("sm_100a", races=True) as gpu:
        compiled = mirlo.compile(image, target=TARGET, cache=False)
        x, w = compiled.random_inputs().values()
        found = compiled(x, w).astype(np.float32)
    assert is_used(gpu.opcodes, "f16")
    padded = np.pad(x.astype(np.float32), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    wanted = np.einsum("nyxcrs,rsco->nyxo", windows, w.astype(np.float32))
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-3 * np.abs(wanted).max())


@mirlo.script
def square(x: R.Tensor[(640, 256), R.f16], y: R.Tensor[(256, 256), R.f16]):
    return R.matmul(x, y)


TAKEN_AWAY = {
    "waiting for loads": (r"\ttcgen05\.wait::ld.*;\n", "before it is written"),
    "a deallocation": (r"\ttcgen05\.dealloc.*;\n", "were not deallocated"),
    "an allocation": (r"\ttcgen05\.alloc.*;\n", "never written"),
    "arrivals of products": (r"\ttcgen05\.commit.*;\n", "hangs"),
    "waiting for anything": (
        r"\tmbarrier\.try_wait.*\n.*\n.*\n",
        "never written|were waited for|arrivals at a barrier that waits",
    ),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", TAKEN_AWAY)
def test_what_is_missing_is_found(name: str) -> None:
    pattern, message = TAKEN_AWAY[name]
    with emulated("sm_100a", races=True) as driver:
        compiled = mirlo.compile(square, target=TARGET, cache=False)
        inputs = compiled.random_inputs().values()
        driver.edit = lambda ptx: re.sub(pattern, "", ptx)
        with pytest.raises(KernelError, match=message):
            compiled(*inputs)


@pytest.mark.sample(2)
@needs_ptxas()
@pytest.mark.parametrize("transposed", ["", "ab"])
def test_large_products_are_assembled_without_spills(transposed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    kind = ("4096x4096", "bf16")
    with make_context(), ir.Location.unknown():
        ptx = ptx_of_module(ir.Module.parse(product(kind, kind, "4096x4096", "bf16", transposed)), "sm_100a")
    made = run_ptxas(ptx, find_chip("sm_100a"))
    assert ptx.count("tcgen05.mma") == 4 and "cp.async.bulk.tensor.2d" in ptx
    assert made.spilled_bytes == 0 and not made.warnings


def test_the_chip_of_all_says_why_not() -> None:
    compiled = mirlo.compile(square, target="nvvm{chip=sm_100}", cache=False)
    assert b"tcgen05" not in compiled.artifact.code and b"mma.sync" in compiled.artifact.code
