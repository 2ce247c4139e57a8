"""Fixtures: a fake of NVIDIA's cuDNN, on a fake of CUDA's driver."""

from __future__ import annotations

from typing import Any

import pytest
from cuda_driver import fake_driver
from fake_cudnn import FakeCudnn
from mirlo_cudnn.native.library import CUDNN


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Any:
    yield from fake_driver(monkeypatch)


@pytest.fixture
def dnn(driver: Any, monkeypatch: pytest.MonkeyPatch) -> FakeCudnn:
    made = FakeCudnn(driver)
    monkeypatch.setattr(CUDNN, "_loaded", made)
    return made
