"""Reductions, arg reductions, running sums and sorting against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from operator_cases import Case, Runner, f32, ints

X = f32(3, 4, 5)


def log_sum_exp(x: np.ndarray, **over: Any) -> np.ndarray:
    return np.log(np.exp(x.astype(np.float64)).sum(**over))


REFERENCE = {
    "reduce_sum": np.sum,
    "reduce_mean": np.mean,
    "reduce_max": np.max,
    "reduce_min": np.min,
    "reduce_prod": np.prod,
    "reduce_l1": lambda x, **over: np.abs(x).sum(**over),
    "reduce_l2": lambda x, **over: np.sqrt((x * x).sum(**over)),
    "reduce_sum_square": lambda x, **over: (x * x).sum(**over),
    "reduce_log_sum_exp": log_sum_exp,
}


def reduce_cases() -> list[Case]:
    made = []
    for name, function in REFERENCE.items():
        for axes in (None, (0,), (-1,), (0, 2), (1, -1)):
            for keep in (False, True):
                attributes = {"keepdims": keep, **({"axes": axes} if axes else {})}
                made.append(Case(name, [X], attributes, function(X, axis=axes, keepdims=keep)))
        half = f32(2, 50).astype(np.float16)
        exact = function(half.astype(np.float32), axis=1)
        made.append(Case(name, [half], {"axes": (1,)}, exact, rtol=2e-3, atol=2e-3))
    positive = np.abs(X) + 0.1
    numbers = ints(-5, 6, 4, 7, dtype=np.int32)
    small = ints(0, 200, 9, dtype=np.uint8)
    made += [
        Case("reduce_log_sum", [positive], {"axes": (1,)}, np.log(positive.sum(1))),
        Case("reduce_any", [X > 1], {"axes": (1,)}, (X > 1).any(1)),
        Case("reduce_all", [X > -1], {"axes": (0, 1)}, (X > -1).all((0, 1))),
        Case("reduce_max", [X > 1], {"axes": (1,)}, (X > 1).any(1)),
        Case("reduce_sum", [numbers], {"axes": (1,)}, numbers.sum(1).astype(np.int32)),
        Case("reduce_prod", [numbers], {"axes": (0,)}, numbers.prod(0).astype(np.int32)),
        Case("reduce_l1", [numbers], {"axes": (0,)}, np.abs(numbers).sum(0).astype(np.int32)),
        Case("reduce_max", [numbers], {"axes": (0,)}, numbers.max(0)),
        Case("reduce_min", [small], {}, small.min()),
        Case("reduce_max", [small], {}, small.max()),
        Case("reduce_max", [np.float32([[1, np.nan], [2, 3]])], {"axes": (1,)}, np.float32([np.nan, 3])),
        Case("reduce_sum", [f32(3, 0)], {"axes": (1,)}, np.zeros(3, np.float32), note="empty"),
        Case("reduce_sum", [f32(0, 3)], {"axes": (0,)}, np.zeros(3, np.float32), note="empty"),
        Case("reduce_sum", [np.float32(2.0).reshape(())], {}, np.float32(2.0), note="scalar"),
        Case("reduce_log_sum_exp", [np.float32([[1000, 1000], [-np.inf, -np.inf]])], {"axes": (1,)},
             np.float32([1000 + np.log(2), -np.inf])),
    ]  # fmt: skip
    return made


def arg_cases() -> list[Case]:
    made = []
    ties = np.float32([[1, 3, 3, 2], [0, 0, 0, 0], [np.nan, 1, np.nan, 5], [-np.inf] * 4])
    for axis in (0, 1, -1):
        for keep in (False, True):
            for name, function in (("argmax", np.argmax), ("argmin", np.argmin)):
                exact = function(X, axis=axis, keepdims=keep)
                made.append(Case(name, [X], {"axis": axis, "keepdims": keep}, exact))
    far = f32(2, 1000)
    far[1, 500:700:50] = np.nan
    for name, function in (("argmax", np.argmax), ("argmin", np.argmin)):
        made.append(Case(name, [far], {"axis": 1}, function(far, axis=1, keepdims=True), note="nan"))
        made.append(Case(name, [far.T], {"axis": 0}, function(far.T, axis=0, keepdims=True), note="nan"))
    made += [
        Case("argmax", [ties], {"axis": 1, "keepdims": False}, np.array([1, 0, 0, 0])),
        Case("argmax", [ties], {"axis": 1, "keepdims": False, "select_last": True}, np.array([2, 3, 2, 3])),
        Case("argmin", [ties], {"axis": 1, "keepdims": False}, np.array([0, 0, 0, 0])),
        Case("argmin", [ties], {"axis": 1, "keepdims": False, "select_last": True}, np.array([0, 3, 2, 3])),
        Case("argmax", [ints(-9, 9, 5, 6, dtype=np.int8)], {"axis": 1}, ints(-9, 9, 5, 6).argmax(1, keepdims=True)),
        Case("argmin", [ints(0, 9, 5, 6, dtype=np.uint8)], {"axis": 0}, ints(0, 9, 5, 6).argmin(0, keepdims=True)),
    ]
    return made


def running(x: np.ndarray, function: Any, axis: int, exclusive: bool, reverse: bool) -> np.ndarray:
    transposed = np.flip(x, axis) if reverse else x
    made = function(transposed, axis=axis)
    if exclusive:
        start = np.zeros_like if function is np.cumsum else np.ones_like
        first = np.take(transposed, [0], axis)
        made = np.concatenate([start(first), np.delete(made, -1, axis)], axis)
    return np.flip(made, axis) if reverse else made


def running_cases() -> list[Case]:
    made = []
    for axis in (0, 1, -1):
        for exclusive in (False, True):
            for reverse in (False, True):
                for name, function in (("cumsum", np.cumsum), ("cumprod", np.cumprod)):
                    attributes = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
                    made.append(Case(name, [X], attributes, running(X, function, axis, exclusive, reverse)))
    numbers = ints(-9, 9, 12)
    made.append(Case("cumsum", [numbers], {"axis": 0}, np.cumsum(numbers)))
    half = np.full(4000, 0.1, np.float16)
    exact = np.cumsum(half.astype(np.float32))
    made.append(Case("cumsum", [half], {"axis": 0}, exact, rtol=1e-3, note="accumulates in f32"))
    return made


def sort_cases() -> list[Case]:
    made = []
    mixed = np.float32([3, np.nan, -1, 3, np.inf, -np.inf, 0, np.nan])
    for x, axis in (
        (X, 0),
        (X, 1),
        (X, -1),
        (f32(1), 0),
        (f32(2, 1000), 1),
        (ints(-5, 5, 3, 9, dtype=np.int32), 1),
        (mixed, 0),
    ):
        made += [
            Case("sort", [x], {"axis": axis}, np.sort(x, axis)),
            Case("argsort", [x], {"axis": axis}, np.argsort(x, axis, kind="stable")),
        ]
    few = ints(0, 4, 30, dtype=np.float32)
    made += [
        Case("argsort", [few], {"descending": True}, np.argsort(-few, kind="stable"), note="stable"),
        Case("sort", [few], {"descending": True}, -np.sort(-few)),
        Case(
            "sort", [mixed], {"descending": True}, np.concatenate([mixed[[1, 7]], -np.sort(-mixed[~np.isnan(mixed)])])
        ),
        Case("sort", [f32(6000)], {}, np.sort(f32(6000)), note="in a workspace"),
    ]
    for x, k, axis in ((X, 2, 1), (X, 5, -1), (few, 7, 0), (f32(3, 500), 20, 1), (X, 1, 0), (f32(5), 0, 0)):
        for largest in (True, False):
            places = np.take(np.argsort(-x if largest else x, axis, kind="stable"), np.arange(k), axis)
            exact = [np.take_along_axis(x, places, axis), places]
            made.append(Case("topk", [x], {"k": k, "axis": axis, "largest": largest}, exact))
    exact = [mixed[[1, 7, 4]], np.array([1, 7, 4])]
    made.append(Case("topk", [mixed], {"k": 3}, exact, note="nan"))
    return made


RUNNER = Runner(reduce_cases() + arg_cases() + running_cases() + sort_cases())


@pytest.mark.sample(4)
@RUNNER.parametrize
def test_reduce(operator: str, index: int, check: Callable[[int], None]) -> None:
    check(index)
