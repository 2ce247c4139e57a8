"""A fake of CUDA's driver as a fixture."""

from __future__ import annotations

from typing import Any

import pytest
from cuda_driver import fake_driver


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a fake driver with two GPUs that runs the kernels compiled next."""
    yield from fake_driver(monkeypatch)
