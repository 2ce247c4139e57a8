"""Epilogues of register tiles whose last vector is partial read no lanes beyond the last column."""

from typing import Any

import numpy as np
import pytest
from onnx_models import F32, make_model, node

import mirlo
from mirlo.tools.fuzz.guards import guarded_places, judge_call

COLUMNS = (1, 2, 3, 5, 15, 17, 18, 31, 33, 47)
"""Numbers of columns, most of which are no multiples of vectors."""


def _product(columns: int) -> Any:
    """Return a product with a bias of one element or as many as there are columns, known in the call only."""
    weight = np.ones((2, columns), np.float32)
    return make_model([node("Gemm", "x w b", "y")], {"x": (F32, ("n", "k")), "b": (F32, ("m",))}, ["y"], {"w": weight})


def _convolution(columns: int) -> Any:
    """Return a 1x1 convolution whose result is scaled by an array that may broadcast along the width."""
    weight = np.ones((3, 2, 1, 1), np.float32)
    nodes = [node("Conv", "x w", "c"), node("Mul", "c b", "y")]
    return make_model(nodes, {"x": (F32, (1, 2, 2, columns)), "b": (F32, ("m",))}, ["y"], {"w": weight})


@pytest.mark.sample(4)
@pytest.mark.parametrize("model", [_product, _convolution], ids=["product", "convolution"])
@pytest.mark.parametrize("columns", COLUMNS)
def test_partial_vectors_read_within_an_operand(model: Any, columns: int) -> None:
    compiled = mirlo.compile(model(columns), cache=False, tune=False, opt_level=0, jobs=1)
    places = guarded_places(compiled)
    for rows in (1, 5):
        x = np.ones((rows, 2) if model is _product else (1, 2, 2, columns), np.float32)
        for count in {1, columns}:
            assert judge_call(places, {"x": x, "b": np.ones(count, np.float32)}) is None
