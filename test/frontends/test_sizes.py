"""Arithmetic on sizes: what it decides holds for all values of the symbols."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.frontends.sizes import SizeArithmetic, Undecided, quotient

N, M = D.symbol("n"), D.symbol("m")
DIMS: list[Dim] = [-3, 0, 1, 4, N, N + 1, N - 1, N * 2, N * 2 + 3, N * M, N + M, M * -1, 3 - N]
MEANINGS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "mod": lambda a, b: a % b,
    "fmod": lambda a, b: int(np.fmod(a, b)),
    "maximum": max,
    "minimum": min,
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b,
    "less": lambda a, b: a < b,
    "greater": lambda a, b: a > b,
    "less_equal": lambda a, b: a <= b,
    "greater_equal": lambda a, b: a >= b,
}
DECIDED = {
    "add": 1.0, "subtract": 1.0, "multiply": 1.0, "divide": 0.5, "mod": 0.5, "fmod": 0.45, "maximum": 1.0,
    "minimum": 1.0, "equal": 0.4, "not_equal": 0.4, "less": 0.5, "greater": 0.5, "less_equal": 0.5,
    "greater_equal": 0.5,
}  # fmt: skip
"""By operator, the least part of the pairs of dims for which the result is known."""


@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize("operator", sorted(MEANINGS))
def test_decided_results_hold_for_all_values(operator: str, least: int) -> None:
    function, decided = SizeArithmetic(least).function(operator), 0
    for left, right in itertools.product(DIMS, DIMS):
        try:
            result = function(left, right)
        except Undecided:
            continue
        decided += 1
        for n, m in itertools.product(range(least, least + 5), repeat=2):
            a, b = (D.substitute(dim, {"n": n, "m": m}) for dim in (left, right))
            assert isinstance(a, int) and isinstance(b, int)
            if b == 0 and operator in ("divide", "mod", "fmod"):
                continue
            found = D.substitute(result, {"n": n, "m": m})
            assert found == MEANINGS[operator](a, b), f"{operator}({left}, {right}) for n={n}, m={m}"
    assert decided >= DECIDED[operator] * len(DIMS) ** 2


def test_quotients_are_exact() -> None:
    assert quotient(N * 6, 3) == N * 2
    assert quotient(N * M, N) == M
    assert quotient(N * 6 + 1, 3) is None
    assert quotient(N, 0) is None
