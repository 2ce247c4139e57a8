"""A fake of CUDA's driver as a fixture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirlo.testing.ptx.driver import EmulatedDriver, fake_driver


@pytest.fixture
def driver() -> Iterator[EmulatedDriver]:
    """Return a fake driver with two GPUs that runs the kernels compiled next."""
    with fake_driver() as made:
        yield made
