"""Elementwise operators against numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from operator_cases import Case, Runner, f32, ints

X = f32(3, 21, scale=2.0)
POSITIVE = np.abs(X) + 0.1
UNIT = np.tanh(X) * np.float32(0.99)
erf = np.vectorize(math.erf)


def _quantile(x: float) -> float:
    return NormalDist().inv_cdf((1 + x) / 2) / math.sqrt(2)


def _slope(x: np.ndarray) -> np.ndarray:
    """Return the derivative of log gamma, by a difference of fourth order."""
    at, step = np.vectorize(math.lgamma), 1e-3 * x
    return (8 * (at(x + step) - at(x - step)) - at(x + 2 * step) + at(x - 2 * step)) / (12 * step)


def _mean(x: np.ndarray, function: Any) -> np.ndarray:
    """Return means over a circle: Bessel's integrals."""
    angles = np.linspace(0, 2 * np.pi, 128, endpoint=False)
    return function(x.astype(np.float64)[..., None], angles).mean(-1)


SPECIAL = np.float32([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -2.5])

UNARY: dict[str, tuple[np.ndarray, Any]] = {
    "abs": (X, np.abs), "negative": (X, np.negative), "sign": (X, np.sign), "exp": (X, np.exp), "exp2": (X, np.exp2),
    "expm1": (X, np.expm1), "log": (POSITIVE, np.log), "log2": (POSITIVE, np.log2), "log10": (POSITIVE, np.log10),
    "log1p": (POSITIVE, np.log1p), "sqrt": (POSITIVE, np.sqrt), "rsqrt": (POSITIVE, lambda x: 1 / np.sqrt(x)),
    "cbrt": (X, np.cbrt), "sin": (X, np.sin), "cos": (X, np.cos), "tan": (UNIT, np.tan), "asin": (UNIT, np.arcsin),
    "acos": (UNIT, np.arccos), "atan": (X, np.arctan), "sinh": (X, np.sinh), "cosh": (X, np.cosh),
    "tanh": (X, np.tanh), "asinh": (X, np.arcsinh), "acosh": (POSITIVE + 1, np.arccosh), "atanh": (UNIT, np.arctanh),
    "erf": (X, erf), "erfc": (X, lambda x: 1 - erf(x.astype(np.float64))), "floor": (X, np.floor), "ceil": (X, np.ceil),
    "trunc": (X, np.trunc), "round": (np.round(X * 2) / 2, np.rint), "reciprocal": (X, np.reciprocal),
    "square": (X, np.square), "erfinv": (UNIT, lambda x: np.vectorize(_quantile)(x.astype(np.float64))),
    "lgamma": (POSITIVE + 2.5, np.vectorize(math.lgamma)),
    "digamma": (POSITIVE + 2, lambda x: _slope(x.astype(np.float64))),
    "bessel_i0": (X, np.i0), "bessel_i0e": (X, lambda x: np.i0(x) * np.exp(-abs(x))),
    "bessel_i1": (X, lambda x: _mean(x, lambda y, a: np.exp(y * np.cos(a)) * np.cos(a))),
    "bessel_i1e": (X, lambda x: _mean(x, lambda y, a: np.exp(y * np.cos(a) - abs(y)) * np.cos(a))),
    "bessel_j0": (X, lambda x: _mean(x, lambda y, a: np.cos(y * np.sin(a)))),
    "bessel_j1": (X, lambda x: _mean(x, lambda y, a: np.cos(a - y * np.sin(a)))),
}  # fmt: skip
BINARY: dict[str, Any] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "maximum": np.maximum,
    "minimum": np.minimum, "floor_divide": np.floor_divide, "mod": np.mod, "fmod": np.fmod, "atan2": np.arctan2,
}  # fmt: skip
COMPARE: dict[str, Any] = {
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal,
    "greater": np.greater, "greater_equal": np.greater_equal,
}  # fmt: skip
BITS: dict[str, Any] = {
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
}  # fmt: skip
LOGICAL: dict[str, Any] = {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}


def float_cases() -> list[Case]:
    made = [Case(name, [x], {}, function(x), rtol=2e-5) for name, (x, function) in UNARY.items()]
    y = f32(21, seed=1) + np.float32(0.25)
    for name, function in BINARY.items():
        made.append(Case(name, [X, y], {}, function(X, y), rtol=1e-4))
        made.append(
            Case(
                name, [f32(4, 1, 3), f32(1, 5, 1, seed=1)], {}, function(f32(4, 1, 3), f32(1, 5, 1, seed=1)), rtol=1e-4
            )
        )
    made.append(Case("power", [POSITIVE, y], {}, np.power(POSITIVE, y), rtol=1e-4))
    made.append(Case("power", [X, np.float32(2.0).reshape(())], {}, X * X, rtol=1e-4))
    tied = np.round(X)
    made += [Case(name, [tied, np.round(y)], {}, function(tied, np.round(y))) for name, function in COMPARE.items()]
    tests = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}
    made += [Case(name, [SPECIAL], {}, function(SPECIAL)) for name, function in tests.items()]
    made += [Case(name, [SPECIAL, SPECIAL], {}, function(SPECIAL, SPECIAL)) for name, function in COMPARE.items()]
    made += [
        Case("sign", [SPECIAL], {}, np.sign(SPECIAL), note="special"),
        Case("maximum", [SPECIAL, SPECIAL[::-1].copy()], {}, np.maximum(SPECIAL, SPECIAL[::-1]), note="special"),
        Case("minimum", [SPECIAL, SPECIAL[::-1].copy()], {}, np.minimum(SPECIAL, SPECIAL[::-1]), note="special"),
        Case("where", [X > 0, X, y], {}, np.where(X > 0, X, y)),
        Case(
            "where", [np.array([[True], [False]]), X[0], np.float32(1.0).reshape(())], {}, np.stack([X[0], np.ones(21)])
        ),
    ]
    infinity = np.float32(np.inf)
    for x, divisor in ((SPECIAL, np.float32(2.5)), (SPECIAL, -infinity), (X * 1000, np.float32(0.1)), (X, infinity)):
        exact = np.mod(x, divisor)
        made.append(Case("mod", [x, np.asarray(divisor)], {}, exact, rtol=1e-4, note=f"by {divisor}"))
        made.append(Case("fmod", [x, np.asarray(divisor)], {}, np.fmod(x, divisor), rtol=1e-4, note=f"by {divisor}"))
    for kind in (np.float16, ml_dtypes.bfloat16):
        a, b = X.astype(kind), y.astype(kind)
        wide = (a.astype(np.float32), b.astype(np.float32))
        made += [
            Case(n, [a, b], {}, BINARY[n](*wide), rtol=1e-2, atol=1e-2)
            for n in ("add", "multiply", "divide", "maximum")
        ]
        made += [Case(n, [a], {}, UNARY[n][1](wide[0]), rtol=1e-2, atol=1e-2) for n in ("exp", "tanh", "negative")]
    return made


def int_cases() -> list[Case]:
    made = []
    for kind in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64):
        low = 0 if np.issubdtype(kind, np.unsignedinteger) else -60
        x, y = ints(low, 60, 3, 17, dtype=kind), ints(low, 60, 17, dtype=kind, seed=1)
        y = np.where(y == 0, kind(7), y)
        for name in ("add", "subtract", "multiply", "floor_divide", "mod", "fmod", "maximum", "minimum"):
            made.append(Case(name, [x, y], {}, BINARY[name](x, y)))
        made.append(Case("divide", [x, y], {}, np.trunc(x / y).astype(kind)))
        made += [Case(name, [x, y], {}, function(x, y)) for name, function in (COMPARE | BITS).items()]
        made += [Case(name, [x], {}, function(x)) for name, function in (("abs", np.abs), ("square", np.square))]
        made += [Case("bitwise_not", [x], {}, ~x), Case("sign", [x], {}, np.sign(x))]
        small = ints(0, 7, 17, dtype=kind, seed=2)
        made += [
            Case("shift_left", [x, small], {}, np.left_shift(x, small)),
            Case("shift_right", [x, small], {}, np.right_shift(x, small)),
            Case("power", [x, small], {}, np.power(x, small)),
        ]
    bits = ints(0, 2, 3, 9).astype(bool)
    other = ints(0, 2, 9, seed=1).astype(bool)
    made += [Case(name, [bits, other], {}, function(bits, other)) for name, function in LOGICAL.items()]
    made += [Case("logical_not", [bits], {}, ~bits), Case("bitwise_not", [bits], {}, ~bits)]
    made += [
        Case("equal", [bits, other], {}, bits == other),
        Case("where", [bits, bits, other], {}, np.where(bits, bits, other)),
    ]
    made.append(
        Case("power", [np.array([2, 1, -1, -1, 0]), np.array([-1, -2, -3, -2, 0])], {}, np.array([0, 1, -1, 1, 1]))
    )
    made.append(Case("shift_left", [np.array([1, 1]), np.array([64, 3])], {}, np.array([0, 8]), note="all bits out"))
    return made


RUNNER = Runner(float_cases() + int_cases())


@pytest.mark.sample(4)
@RUNNER.parametrize
def test_elementwise(operator: str, index: int, check: Callable[[int], None]) -> None:
    check(index)
