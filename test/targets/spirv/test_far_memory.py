"""Devices whose memory cannot be reached from the host: everything goes through a buffer in between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from decisions import ALL
from devices import needs_vulkan

import mirlo
from mirlo import R
from mirlo.targets.spirv import model as placed
from mirlo.targets.spirv.vulkan import DeviceBuffer, VulkanDevice

pytestmark = needs_vulkan()

WEIGHT = np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32)


@mirlo.script
def model(x: R.Tensor[(8, 64), R.f32]):
    return R.softmax(R.matmul(x, R.const(WEIGHT)) * R.const(3.0, "f32"))


@pytest.fixture
def buffers(monkeypatch: pytest.MonkeyPatch) -> list[DeviceBuffer]:
    """Return the buffers of a device whose memory is not the host's."""
    make, made = VulkanDevice.buffer, []  # type: ignore[var-annotated]

    def far(self: VulkanDevice, size: int, host: bool = False) -> DeviceBuffer:
        buffer = make(self, size, host)
        buffer.local = not host
        buffer.mapped = buffer.mapped if host else None
        made.append(buffer)
        return buffer

    monkeypatch.setattr(VulkanDevice, "buffer", far)
    return made


def test_weights_inputs_and_outputs_are_copied(monkeypatch: pytest.MonkeyPatch, buffers: list[DeviceBuffer]) -> None:
    monkeypatch.setattr(placed, "CHUNK", 1000)  # weights in several pieces
    compiled: Any = mirlo.compile(model, target="spirv", cache=False)
    for seed in range(2):
        (x,) = compiled.random_inputs(seed).values()
        e = np.exp(x @ WEIGHT * 3)
        np.testing.assert_allclose(compiled(x), e / e.sum(1, keepdims=True), rtol=1e-4, atol=1e-6)
    assert compiled.profile(x).microseconds > 0
    assert any(buffer.mapped is None for buffer in buffers)


@pytest.mark.parametrize("name", ["rounds", "counted"])
def test_what_decides_is_read_back(buffers: list[DeviceBuffer], name: str) -> None:
    made, cases = ALL[name]()
    there, here = (mirlo.compile(made, target=target, cache=False) for target in ("spirv", "llvm"))
    for inputs in cases:
        np.testing.assert_allclose(there.run(inputs)["y"], here.run(inputs)["y"], rtol=1e-6)
