"""Models of target nvvm executed from their PTX, by the emulator in place of a GPU."""

from __future__ import annotations

import numpy as np
import pytest
from emulator.driver import EmulatedDriver, emulated

import mirlo
from mirlo import R
from mirlo.tools.conformance.check import OK, check_target

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


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
def test_operators_and_intrinsics(chip: str) -> None:
    with emulated(chip):
        matrix = check_target(f"nvvm{{chip={chip}}}", SAMPLE)
    assert matrix.count(OK) >= 4 * len(SAMPLE) - 1
    wrong = [(e.name, kind, v.detail) for e in matrix.entries for kind, v in e.verdicts.items() if v.status != OK]
    assert not wrong
