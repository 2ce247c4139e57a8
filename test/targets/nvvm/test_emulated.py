"""Models of target nvvm executed from their PTX, by the emulator in place of a GPU."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emulated_matrix import CHIPS as PAGE_CHIPS
from emulated_matrix import PAGE, counted, page, sampled, with_rows
from emulated_models import TOLERANCE, error

import mirlo
from mirlo import R
from mirlo.targets.nvvm.chips import CHIPS
from mirlo.targets.nvvm.schedule import pipelined, warpgroup
from mirlo.testing.ptx import KernelError
from mirlo.testing.ptx.driver import EmulatedDriver, emulated
from mirlo.tools.conformance.check import OK, Matrix, MatrixEntry, SupportVerdict, check_target, names
from mirlo.tools.conformance.matrix import markdown

SAMPLE = (
    "relax.add", "relax.argmax", "relax.avg_pool", "relax.conv", "relax.cumsum", "relax.divide", "relax.gather",
    "relax.layer_norm", "relax.matmul", "relax.reduce_sum", "relax.scatter_elements", "relax.softmax", "relax.topk",
    "tir.exp", "tir.fixed_mul", "tir.fmod", "tir.pow", "tir.sin",
)  # fmt: skip


@mirlo.script
def layer(x: R.Tensor[(33, 65), R.f32], y: R.Tensor[(33, 65), R.f32]):
    return R.tanh(R.exp(x) + y)


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
def test_calls(chip: str) -> None:
    with emulated(chip) as driver:
        compiled = mirlo.compile(layer, target=f"nvvm{{chip={chip}}}", cache=False)
        for seed in range(3):
            x, y = compiled.random_inputs(seed).values()
            np.testing.assert_allclose(compiled(x, y), np.tanh(np.exp(x) + y), rtol=1e-5, atol=1e-6)
        assert driver.calls.count("cuGraphLaunch") == 3 and len(driver.launched) == 3
        del compiled
    assert isinstance(driver, EmulatedDriver)


@pytest.mark.sample(0)
@pytest.mark.parametrize("chip", ["sm_90a"])
def test_operators_and_intrinsics(chip: str) -> None:
    with emulated(chip):
        matrix = check_target(f"nvvm{{chip={chip}}}", SAMPLE)
    assert matrix.count(OK) >= 4 * len(SAMPLE) - 1
    wrong = [(e.name, kind, v.detail) for e in matrix.entries for kind, v in e.verdicts.items() if v.status != OK]
    assert not wrong


@mirlo.script
def rows(x: R.Tensor[(2, 3000), R.f32]):
    return R.softmax(x)


@mirlo.script
def product(x: R.Tensor[(64, 96), R.f32], y: R.Tensor[(96, 64), R.f32]):
    return R.matmul(x, y)


@mirlo.script
def halves(x: R.Tensor[(256, 256), R.f16], y: R.Tensor[(256, 256), R.f16]):
    return R.matmul(x, y)


@mirlo.script
def high(x: R.Tensor[(512, 256), R.f16], y: R.Tensor[(256, 256), R.f16]):
    return R.matmul(x, y)


TAKEN_AWAY: dict[str, tuple[Any, str, str, str]] = {
    "barriers of rows": (rows, "sm_80", r"\tbar\.sync.*;\n", "a race: warp"),
    "barriers of a product": (product, "sm_80", r"\tbar\.sync.*;\n", "a race: warp"),
    "waiting for copies": (halves, "sm_80", r"\tcp\.async\.wait_group.*;\n", "are still being copied to"),
    "groups of copies": (halves, "sm_80", r"\tcp\.async\.commit_group.*;\n", "are still being copied to"),
    "the fence": (halves, "sm_90a", r"\twgmma\.fence.*;\n", "without wgmma.fence"),
    "waiting for products": (halves, "sm_90a", r"\twgmma\.wait_group.*;\n", "before it is written"),
    "waiting for tiles": (halves, "sm_90a", r"\tmbarrier\.try_wait.*\n.*\n.*\n", "were never written"),
    "an arrival": (halves, "sm_90a", r"\tmbarrier\.arrive\.expect_tx.*;\n", "hangs"),
    "the cluster's barrier": (high, "sm_90a", r"\tbarrier\.cluster\.arrive.*;\n", "has not arrived"),
}


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", TAKEN_AWAY)
def test_what_is_missing_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Removing instructions from kernels is detected, so such faults of schedules would be too."""
    model, chip, pattern, message = TAKEN_AWAY[name]
    monkeypatch.setitem(CHIPS, chip, replace(CHIPS[chip], units=4))
    with emulated(chip, races=True) as driver:
        compiled = mirlo.compile(model, target=f"nvvm{{chip={chip}}}", cache=False)
        inputs = compiled.random_inputs().values()
        driver.edit = lambda ptx: re.sub(pattern, "", ptx)
        with pytest.raises(KernelError, match=message):
            compiled(*inputs)


def test_new_operators_are_added_to_the_page() -> None:
    """In their places, with the totals of each chip: the page is as if all had been executed."""
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in names() if f"| `{name}` |" not in text] == [], "emulated_matrix.py --new"
    kinds = ("f32", "bool")
    matrix = Matrix(
        "nvvm", tuple(MatrixEntry(name, {kinds[at % 2]: SupportVerdict(OK)}) for at, name in enumerate(names()))
    )
    whole = page(matrix, PAGE_CHIPS, [counted(matrix)] * len(PAGE_CHIPS))
    for left_out in (names()[:1], names()[5:7], names()[-1:]):
        few, more = (
            Matrix("nvvm", tuple(each for each in matrix.entries if (each.name in left_out) == is_left_out))
            for is_left_out in (False, True)
        )
        before = page(few, PAGE_CHIPS, [counted(few)] * len(PAGE_CHIPS))
        assert with_rows(before, [more] * len(PAGE_CHIPS)) == whole
    assert with_rows(whole, [Matrix("nvvm", ())] * len(PAGE_CHIPS)) == whole


@pytest.mark.sample(0)
def test_page_of_nvvm_is_up_to_date() -> None:
    """One element type of every second operator is executed here, all of them by the command that writes the page."""
    _, _, tables = markdown(sampled("sm_80")).partition("\n## ")
    _, _, written = PAGE.read_text(encoding="utf-8").partition("\n## ")
    assert tables == written, "run python test/targets/nvvm/emulated_matrix.py > docs/support-matrix-nvvm.md"


@pytest.mark.sample(0)
@pytest.mark.parametrize(("name", "chip"), [("mobilenetv2", "sm_80"), ("gpt2", "sm_90a")])
def test_models_agree_with_onnx_runtime(name: str, chip: str) -> None:
    """The others take minutes, by the command of the file."""
    assert error(name, chip) <= TOLERANCE


@mirlo.script
def image(x: R.Tensor[(1, 16, 16, 64), R.f16], w: R.Tensor[(3, 3, 64, 128), R.f16]):
    return R.conv(x, w, padding=[1, 1, 1, 1], data_layout="N*C", kernel_layout="*IO")


@pytest.mark.sample(0)
def test_what_threads_copy_is_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images that threads gather for warpgroups, with and without what shows the matrix units their copies."""
    monkeypatch.setattr(pipelined, "best_tile", lambda *_: warpgroup.WarpgroupTile(1, 64, 1.0))
    monkeypatch.setitem(CHIPS, "sm_90a", replace(CHIPS["sm_90a"], units=4))
    with emulated("sm_90a", races=True) as driver:
        compiled = mirlo.compile(image, target="nvvm{chip=sm_90a}", cache=False)
        x, w = compiled.random_inputs().values()
        found = compiled(x, w).astype(np.float32)
        assert any(opcode.startswith("wgmma.mma_async") for opcode in driver.opcodes)
        wide = np.pad(x.astype(np.float32), ((0, 0), (1, 1), (1, 1), (0, 0)))
        steps = [(i, j) for i in range(3) for j in range(3)]
        wanted = sum(wide[:, i : i + 16, j : j + 16] @ w[i, j].astype(np.float32) for i, j in steps)
        np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=0.1)
        driver.edit = lambda ptx: re.sub(r"\tfence\.proxy\.async.*;\n", "", ptx)
        again = mirlo.compile(image, target="nvvm{chip=sm_90a}", cache=False)
        with pytest.raises(KernelError, match="without fence.proxy.async behind"):
            again(x, w)
