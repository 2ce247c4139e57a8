"""Fixtures of the ONNX import tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mirlo.dialects.context import make_context
from mirlo.frontends.onnx import import_model


@pytest.fixture(scope="session")
def context() -> Any:
    return make_context()


@pytest.fixture
def imported(context: Any) -> Callable[..., str]:
    """Return the verified IR of a model."""

    def run(model: Any, **options: Any) -> str:
        module, _ = import_model(model, context=context, **options)
        assert module.operation.verify()
        return str(module)

    return run
