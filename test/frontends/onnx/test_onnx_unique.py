"""Unique and NonMaxSuppression, with data-dependent sizes, compared with numpy and ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import mirlo


def model(
    operator: str, given: dict[str, np.ndarray], outputs: dict[str, int], domain: str = "", **attributes: Any
) -> Any:
    node = helper.make_node(operator, list(given), list(outputs), domain=domain, **attributes)
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in given.items()
    ]
    results = [helper.make_tensor_value_info(n, kind, None) for n, kind in outputs.items()]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph([node], "g", inputs, results), opset_imports=imports, ir_version=8)


def same(operator: str, given: dict[str, np.ndarray], outputs: dict[str, int], *more: Any, **attributes: Any) -> None:
    made = model(operator, given, outputs, *more, **attributes)
    expected = onnxruntime.InferenceSession(made.SerializeToString()).run(None, given)
    found = mirlo.compile(made).run(given)
    for one, other in zip(found.values(), expected, strict=True):
        np.testing.assert_array_equal(one, other)


UNIQUE = {"y": 1, "first": 7, "inverse": 7, "counts": 7}
X = np.float32(np.random.default_rng(0).integers(0, 4, (6, 2, 3)))


@pytest.mark.sample(2)
@pytest.mark.parametrize("is_sorted", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_unique(axis: int | None, is_sorted: int) -> None:
    given = {} if axis is None else {"axis": axis}
    same("Unique", {"x": X}, UNIQUE, sorted=is_sorted, **given)
    rows = np.repeat(X, 3, axis=0 if axis is None else axis)
    same("Unique", {"x": rows}, UNIQUE, sorted=is_sorted, **given)


def test_one_compilation_for_all_data() -> None:
    made = model("Unique", {"x": X[0, 0]}, UNIQUE)
    f = mirlo.compile(made)
    for x in (np.float32([1, 1, 1]), np.float32([3, 1, 2]), np.float32([np.nan, 1, np.nan])):
        found = f(x)
        expected = np.unique(x, True, True, True)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_unique_of_microsoft() -> None:
    outputs = {"y": 1, "inverse": 7, "counts": 7}
    same("Unique", {"x": np.float32([2, 1, 1, 3, 2, 9])}, outputs, "com.microsoft")


def test_boxes() -> None:
    rng = np.random.default_rng(1)
    boxes, scores = rng.uniform(0, 4, (2, 20, 4)).astype(np.float32), rng.random((2, 3, 20), np.float32)
    for limit, overlap, least in ((3, 0.3, 0.0), (20, 0.9, 0.5), (5, 0.1, 2.0)):
        scalars = {"m": np.int64([limit]), "o": np.float32([overlap]), "t": np.float32([least])}
        same("NonMaxSuppression", {"boxes": boxes, "scores": scores, **scalars}, {"y": 7})
