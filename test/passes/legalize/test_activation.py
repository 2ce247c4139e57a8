"""Activations and the softmax family against numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from operator_cases import Case, Runner, f32, ints

X = np.concatenate([f32(13, 7, scale=3.0).ravel(), np.float32([0.0, -0.0, 100.0, -100.0])]).reshape(5, 19)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x.astype(np.float64)))


def softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, x.astype(np.float64))


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    raised = np.exp(x.astype(np.float64) - x.max(axis=axis, keepdims=True))
    return raised / raised.sum(axis=axis, keepdims=True)


def expm1(x: np.ndarray) -> np.ndarray:
    return np.expm1(np.minimum(x.astype(np.float64), 0.0))


erf = np.vectorize(math.erf)
SELU = (1.67326319217681884765625, 1.05070102214813232421875)

REFERENCE: list[tuple[str, dict[str, Any], Any]] = [
    ("relu", {}, lambda x: np.maximum(x, 0)),
    ("leaky_relu", {}, lambda x: np.where(x >= 0, x, 0.01 * x)),
    ("leaky_relu", {"alpha": 0.3}, lambda x: np.where(x >= 0, x, 0.3 * x)),
    ("elu", {"alpha": 0.7}, lambda x: np.where(x > 0, x, 0.7 * expm1(x))),
    ("selu", {}, lambda x: SELU[1] * np.where(x > 0, x, SELU[0] * expm1(x))),
    ("celu", {"alpha": 2.0}, lambda x: np.maximum(x, 0) + np.minimum(0, 2 * expm1(x / 2))),
    ("sigmoid", {}, sigmoid),
    ("hard_sigmoid", {"alpha": 0.25, "beta": 0.4}, lambda x: np.clip(0.25 * x + 0.4, 0, 1)),
    ("hard_swish", {}, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    ("silu", {}, lambda x: x * sigmoid(x)),
    ("mish", {}, lambda x: x * np.tanh(softplus(x))),
    ("softplus", {}, softplus),
    ("softsign", {}, lambda x: x / (1 + np.abs(x))),
    ("thresholded_relu", {"alpha": 0.6}, lambda x: np.where(x > 0.6, x, 0)),
    ("shrink", {"lambd": 0.7, "bias": 0.2}, lambda x: np.where(x < -0.7, x + 0.2, np.where(x > 0.7, x - 0.2, 0))),
    ("gelu", {}, lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2)))),
    (
        "gelu",
        {"approximate": "tanh"},
        lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x.astype(np.float64) ** 3))),
    ),
    ("clip", {"min": -0.5, "max": 0.25}, lambda x: np.clip(x, -0.5, 0.25)),
    ("clip", {"max": 0.25}, lambda x: np.minimum(x, 0.25)),
    ("softmax", {}, lambda x: softmax(x, -1)),
    ("log_softmax", {"axis": 0}, lambda x: np.log(np.maximum(softmax(x, 0), 1e-300))),
]
SIXTEEN = {"rtol": 2e-3, "atol": 2e-3}


def cases() -> list[Case]:
    made = [
        Case(name, [X], attributes, function(X)) for name, attributes, function in REFERENCE if name != "log_softmax"
    ]
    half = f32(3, 21).astype(np.float16)
    made += [Case(n, [half], a, f(half.astype(np.float32)), **SIXTEEN) for n, a, f in REFERENCE if "softmax" not in n]
    double = f32(2, 5).astype(np.float64)
    made += [Case(n, [double], a, f(double), rtol=1e-12, atol=1e-12) for n, a, f in REFERENCE]
    numbers = ints(-20, 20, 4, 6, dtype=np.int32)
    made += [
        Case("relu", [numbers], {}, np.maximum(numbers, 0)),
        Case("relu", [numbers.astype(np.int8)], {}, np.maximum(numbers, 0).astype(np.int8)),
        Case("clip", [numbers], {"min": -2.5, "max": 7.0}, np.clip(numbers, -2, 7)),
        Case("clip", [abs(numbers).astype(np.uint8)], {"min": -4.0, "max": 7.5}, np.clip(abs(numbers), 0, 7)),
        Case("clip", [numbers.astype(np.int8)], {"min": -math.inf, "max": math.inf}, numbers.astype(np.int8)),
        Case("clip", [numbers.astype(np.int8)], {"min": -129.0, "max": 128.0}, numbers.astype(np.int8)),
        Case("clip", [np.int8([-128, 0, 127])], {"min": -500.0, "max": 500.0}, np.int8([-128, 0, 127])),
        Case("clip", [np.uint8([0, 1, 255])], {"min": -math.inf, "max": 256.0}, np.uint8([0, 1, 255])),
        Case(
            "shrink",
            [numbers],
            {"lambd": 3.0, "bias": 1.0},
            np.where(numbers < -3, numbers + 1, 0) + np.where(numbers > 3, numbers - 1, 0),
        ),
        Case("prelu", [X, f32(19)], {}, np.where(X >= 0, X, X * f32(19))),
        Case(
            "prelu",
            [f32(2, 3, 4), f32(3, 1, seed=1)],
            {},
            np.where(f32(2, 3, 4) >= 0, f32(2, 3, 4), f32(2, 3, 4) * f32(3, 1, seed=1)),
        ),
        Case("clip", [X], {}, X),
    ]
    for shape, axis in (
        ((2, 3, 5), 0),
        ((2, 3, 5), 1),
        ((2, 3, 5), -1),
        ((7,), 0),
        ((1, 1), 1),
        ((4, 1000), 1),
        ((3, 17, 2), -2),
    ):
        x = f32(*shape, scale=4.0)
        exact = softmax(x, axis)
        first = np.zeros_like(x)
        np.put_along_axis(first, np.expand_dims(x.argmax(axis), axis), 1, axis)
        made += [
            Case("softmax", [x], {"axis": axis}, exact),
            Case("log_softmax", [x], {"axis": axis}, np.log(exact)),
            Case("hardmax", [x], {"axis": axis}, first),
            Case("softmax", [x.astype(np.float16)], {"axis": axis}, exact, **SIXTEEN),
        ]
    large = np.float32([[1e30, -1e30, 1e30], [-np.inf, 0.0, 1.0]])
    made.append(Case("softmax", [large], {}, softmax(large, -1), note="large"))
    made.append(Case("hardmax", [np.float32([[1, 3, 3], [np.nan, 1, 2]])], {}, np.float32([[0, 1, 0], [1, 0, 0]])))
    return made


RUNNER = Runner(cases())


@pytest.mark.sample(3)
@RUNNER.parametrize
def test_activation(operator: str, index: int, check: Callable[[int], None]) -> None:
    check(index)
