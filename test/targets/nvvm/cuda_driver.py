"""The driver that stands in for CUDA's, for what is compiled next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fake_cuda import FakeDriver

from mirlo.passes.lower.calls import find
from mirlo.targets.nvvm import device, emit, options


def fake_driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """A driver of two GPUs that runs the kernels of what is compiled next."""
    made = FakeDriver({}, gpus=2)
    copies = []
    to_ptx = emit.to_ptx

    def keeping(module: Any, *rest: Any) -> Any:
        copy = module.operation.clone()
        copies.append(copy)
        for kernel in find(copy, "gpu.func"):
            made.kernels[kernel.parent.attributes["sym_name"].value] = kernel
        return to_ptx(module, *rest)

    monkeypatch.setattr(emit, "to_ptx", keeping)
    monkeypatch.setattr(device, "driver", lambda: made)
    # Code is made for the chip that tests name, not for the one that stands in.
    _forget_chips()
    with monkeypatch.context() as before:
        before.setattr(device, "capability", lambda: None)
        options._present()
    device.gpu.cache_clear()
    yield made
    device.gpu.cache_clear()
    _forget_chips()


def _forget_chips() -> None:
    options._present.cache_clear()
    options._as_here.cache_clear()
