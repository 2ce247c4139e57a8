"""Samples of PyTorch's operator database, compiled without ONNX and compared with PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-doors")
pytest.importorskip("expecttest", reason="the database needs expecttest: make test-doors")

from mirlo.benchmarks import aten  # noqa: E402

TYPES = ("f32", "f16", "bf16", "i64")
STEP = 23
"""One of so many operators is tested, and three samples of each."""


def pytest_generate_tests(metafunc: Any) -> None:
    whole = bool(metafunc.config.getoption("--whole"))
    found = aten.entries(())[:: 1 if whole else STEP]
    metafunc.parametrize("entry", found, ids=[aten.name_of(entry) for entry in found])


@pytest.mark.sample(10)
def test_samples_are_right_or_refused_by_name(entry: Any, whole: bool) -> None:
    for kind, outcome in aten.run(entry, TYPES, 1000 if whole else 3).items():
        assert not outcome.wrong, (kind, outcome.wrong)
        assert not outcome.failed, (kind, outcome.failed)
