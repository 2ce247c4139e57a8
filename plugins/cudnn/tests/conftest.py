"""Fixtures: a fake of NVIDIA's cuDNN, on a fake of CUDA's driver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fake_cudnn import FakeCudnn
from mirlo_cudnn.native.library import CUDNN

from mirlo.testing.ptx.driver import EmulatedDriver, fake_driver


@pytest.fixture
def driver() -> Iterator[EmulatedDriver]:
    with fake_driver() as made:
        yield made


@pytest.fixture
def dnn(driver: Any, monkeypatch: pytest.MonkeyPatch) -> FakeCudnn:
    made = FakeCudnn(driver)
    monkeypatch.setattr(CUDNN, "_loaded", made)
    return made
