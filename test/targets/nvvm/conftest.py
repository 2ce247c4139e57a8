"""The driver that stands in for CUDA's, as a fixture."""

from __future__ import annotations

from typing import Any

import pytest
from cuda_driver import fake_driver


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a driver of two GPUs that runs the kernels of what is compiled next."""
    yield from fake_driver(monkeypatch)
