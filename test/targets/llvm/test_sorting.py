"""Sorting by radix, and the k best: all types, both directions, NaN, zeros of both signs, equal elements."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from onnx import helper

import mirlo

KINDS = ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def _sorted(kind: str, largest: int, rows: int | str, size: int | str, count: int = 0) -> mirlo.Executable:
    """Compile TopK with a constant count, or with a dynamic count of all elements."""
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    counted = {"value_ints": [count]} if count else {"start": 1}
    nodes = [
        helper.make_node("Constant" if count else "Shape", [] if count else ["x"], ["count"], **counted),
        helper.make_node("TopK", ["x", "count"], ["values", "places"], axis=1, largest=largest),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", element, (rows, size))],
        [helper.make_empty_tensor_value_info(name) for name in ("values", "places")],
    )  # fmt: skip
    return mirlo.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10))


def _elements(kind: str, shape: tuple[int, int], seed: int) -> np.ndarray:
    rng, dtype = np.random.default_rng(seed), np.dtype(kind)
    if dtype.kind == "f":
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, 3.0, -3.0], dtype)
        return np.where(rng.random(shape) < 0.5, rng.choice(special, shape), rng.normal(size=shape).astype(dtype))
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return rng.choice(np.array([low, low + 1, 0, 1, 2, high - 1, high], dtype), shape)


def _expected_places(x: np.ndarray, largest: int) -> np.ndarray:
    """Return the places of a stable sort in which NaN is the largest and zeros are equal."""
    if x.dtype.kind == "f":
        rank = np.where(np.isnan(x), np.inf, x.astype(np.float64)) + 0.0
        major = np.isnan(x).astype(np.int64)
    else:
        ranks = np.unique(x)
        rank, major = np.searchsorted(ranks, x), np.zeros(x.shape, np.int64)
    sign = -1 if largest else 1
    return np.stack([np.lexsort((sign * a, sign * b)) for a, b in zip(rank, major, strict=True)])


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", KINDS)
def test_radix_sort(kind: str) -> None:
    for largest, (rows, size) in product((0, 1), ((2, "n"), (3, 100))):
        function = _sorted(kind, largest, rows, size)
        for length in (100,) if size == 100 else (0, 1, 2, 63, 300, 3000):
            x = _elements(kind, (rows, length), length)
            values, places = function(x)
            wanted = _expected_places(x, largest)
            np.testing.assert_array_equal(places, wanted)
            # The bits: zeros keep their signs and NaN its payload.
            assert values.tobytes() == np.take_along_axis(x, wanted, 1).tobytes()


@pytest.mark.parametrize("size", [5, 63, 64, 1000])
def test_short_rows_are_merged(size: int) -> None:
    """Sort rows below and above the least number of elements alike."""
    x = _elements("float32", (4, size), size)
    values, places = _sorted("float32", 1, 4, size)(x)
    np.testing.assert_array_equal(places, _expected_places(x, 1))
    assert values.tobytes() == np.take_along_axis(x, places, 1).tobytes()


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", ["float32", "float64", "int8", "int64", "uint32"])
def test_the_best_elements(kind: str) -> None:
    """Compare the best elements, for whose sake most others are only compared in chunks."""
    for largest, count in product((0, 1), (1, 5, 40)):
        function = _sorted(kind, largest, 2, "n", count)
        for length in (count, count + 1, count + 15, count + 16, count + 100, 3000):
            x = _elements(kind, (2, length), length)
            if length == 3000 and x.dtype.kind == "f":
                x[0] = np.where(np.arange(length) < 2900, np.nan, x[0])  # more than are asked for
            values, places = function(x)
            wanted = _expected_places(x, largest)[:, :count]
            np.testing.assert_array_equal(places, wanted)
            assert values.tobytes() == np.take_along_axis(x, wanted, 1).tobytes()
