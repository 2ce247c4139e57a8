"""Buffers beyond what a device binds are bound in parts."""

from __future__ import annotations

import numpy as np
import pytest
from devices import needs_vulkan

import mirlo
from mirlo import R
from mirlo.targets.gpu.program import SplitParameter
from mirlo.targets.spirv import large

pytestmark = needs_vulkan()


@mirlo.script
def looked_up(table: R.Tensor[(50, 33), R.f32], which: R.Tensor[(7,), R.i64]):
    return R.gather(table, which, axis=0) + R.reduce_sum(table, axes=[0], keepdims=False)


def test_parts_of_inputs_and_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    split = large.split_large
    found: dict[str, list[SplitParameter]] = {}

    def at_most_half_a_kilobyte(module: object) -> dict[str, list[SplitParameter]]:
        found.update(split(module, 512))
        return found

    monkeypatch.setattr("mirlo.targets.spirv.emit.split_large", at_most_half_a_kilobyte)
    model = mirlo.compile(looked_up, target="spirv", cache=False)
    table = np.random.default_rng(0).standard_normal((50, 33)).astype(np.float32)
    which = np.array([0, 49, 3, 25, 7, 7, 31])
    np.testing.assert_allclose(model(table, which), table[which] + table.sum(0), rtol=1e-5, atol=1e-5)
    assert found and all(part.part_bytes == 512 for parts in found.values() for part in parts)
