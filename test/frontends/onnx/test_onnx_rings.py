"""Which caches become rings of rows for sliding windows when a model is imported."""

from __future__ import annotations

from typing import Any

import pytest

import mirlo
from mirlo.frontends.onnx.importer import import_model
from mirlo.testing.window_models import window_model


@pytest.mark.parametrize(
    "model",
    (
        window_model(extra="bias"), window_model(extra="scores"), window_model(extra="read"), window_model(rows=4),
        window_model(window=-1),
    ),
)  # fmt: skip
def test_caches_that_stay_whole(model: Any) -> None:
    module, _ = import_model(model, rings=True)
    whole, _ = import_model(model)
    assert "relax.window" not in str(module) and str(module) == str(whole)


def test_rings_are_made_at_import() -> None:
    module, _ = import_model(window_model())
    with pytest.raises(ValueError, match="ring_caches: caches become rings when an ONNX model is imported"):
        mirlo.compile(module, ring_caches=True)
