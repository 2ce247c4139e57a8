"""Models are released in any thread, while others work on the device."""

from __future__ import annotations

import gc
import threading

import numpy as np
import onnx
import pytest
from devices import needs_vulkan
from onnx import helper

import mirlo
from mirlo.runtime import processes

SECONDS = 120.0
"""Longest time of what must not wait forever: opening a device takes one, on a busy machine many more."""


def _model() -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [5]) for name in "xy")
    return helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y]))


@pytest.mark.sample(2)
@needs_vulkan()
def test_a_model_ends_in_a_thread_that_another_one_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipelines are made by threads that a call waits for: a collection of one of them may find an old model."""
    from mirlo.targets.spirv.vulkan import DeviceBuffer, VulkanDevice, device

    freed: list[DeviceBuffer] = []
    free = VulkanDevice.free

    def note(self: VulkanDevice, buffer: DeviceBuffer) -> None:
        freed.append(buffer)
        free(self, buffer)

    monkeypatch.setattr(VulkanDevice, "free", note)
    models = [mirlo.compile(_model(), "spirv")]
    np.testing.assert_array_equal(models[0](np.arange(-2, 3, dtype=np.float32)), [0, 0, 0, 1, 2])
    gc.collect()
    freed.clear()

    def end() -> None:
        models.clear()
        gc.collect()

    thread = threading.Thread(target=end, daemon=True)
    with device().lock:
        thread.start()
        thread.join(SECONDS)
        waits = thread.is_alive()
        assert not freed  # whoever holds the lock is not interrupted
    assert not waits
    assert freed


@pytest.mark.sample(3)
@needs_vulkan()
@pytest.mark.skipif(not processes.can_fork(), reason="this system has no forks")
@pytest.mark.parametrize("kind", ["called", "compiled", "released"])
def test_a_fork_opens_the_device_again(kind: str) -> None:
    """The threads of the driver stay in the parent: a fork that waits for them waits forever."""
    from mirlo.targets.spirv.vulkan import device

    x = np.arange(-2, 3, dtype=np.float32)
    models = [mirlo.compile(_model(), "spirv", cache=False)]
    expected = models[0](x)
    parent = device()

    def work() -> None:
        if kind == "released":
            models.clear()
            gc.collect()
        else:
            model = models[0] if kind == "called" else mirlo.compile(_model(), "spirv", cache=False)
            np.testing.assert_array_equal(model(x), expected)
        assert device() is not parent

    fork = processes.process_context().Process(target=work)
    fork.start()
    fork.join(SECONDS)
    waits = fork.is_alive()
    fork.kill()
    fork.join()
    assert not waits and fork.exitcode == 0
    np.testing.assert_array_equal(models[0](x), expected)
    assert device() is parent
