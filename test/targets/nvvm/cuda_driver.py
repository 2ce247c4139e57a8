"""The fake of CUDA's driver, with the emulator as its GPUs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from emulator.driver import EmulatedDriver, emulated

from mirlo.targets.nvvm import device, options


def fake_driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedDriver]:
    """Return a fake driver with two GPUs that executes the PTX compiled next."""
    with emulated(gpus=2) as made:
        # Code is made for the chip that tests name, not for the one that stands in.
        _forget_chips()
        with monkeypatch.context() as before:
            before.setattr(device, "capability", lambda: None)
            options._present()
        yield made
    _forget_chips()


def _forget_chips() -> None:
    options._present.cache_clear()
    options._as_here.cache_clear()
