"""Arithmetic on sizes: decisions hold for all values of the symbols."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.frontends.sizes import (
    DimSymbols,
    SizeArithmetic,
    Solutions,
    Solved,
    Undecided,
    broadcast_dim,
    broadcast_of,
    quotient,
)

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
    function, decided = SizeArithmetic(least).functions[operator], 0
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


def _value(dim: Dim, n: int, m: int) -> int:
    found = D.substitute(dim, {"n": n, "m": m})
    assert isinstance(found, int)
    return found


def _broadcasts(left: int, right: int) -> int | None:
    """Return what two numbers broadcast to; None if they do not, or are no sizes."""
    if min(left, right) < 0 or (left != right and 1 not in (left, right)):
        return None
    return right if left == 1 else left


@pytest.mark.parametrize("left", [*DIMS, D.minimum(N, 1), N * M + N], ids=str)
def test_broadcast_dims_hold_for_all_values(left: Dim) -> None:
    for right in [*DIMS, D.minimum(N, 1), D.maximum(N, 0)]:
        found, whole = broadcast_dim(left, right), broadcast_of([left, right])
        for n, m in itertools.product(range(5), repeat=2):
            expected = _broadcasts(_value(left, n, m), _value(right, n, m))
            if expected is not None:
                assert _value(whole, n, m) == expected
                assert found is None or _value(found, n, m) == expected


def test_symbols_return_to_a_mark() -> None:
    """What was made since then is made again under the same names."""
    symbols = DimSymbols({"n", "x.s2"}, Solutions({"x.s1": 4}))
    assert symbols.of_data("x") == ("x.s1", 4)
    mark = symbols.mark()

    def more() -> list[object]:
        name, dim = symbols.of_data("x")
        broadcast = symbols.broadcast("node y", "y", [N, dim])
        return [name, dim, broadcast, symbols.bind("z"), dict(symbols.bound), symbols.undecided()]

    first = more()
    assert first[0] == "x.s3", "a dim of an input has the name of the second"
    assert symbols.is_made_after("x.s3", mark) and not symbols.is_made_after("x.s1", mark)
    symbols.restore(mark)
    assert list(symbols.bound) == ["x.s1"] and symbols.undecided() == {}
    assert more() == first


def test_symbols_are_solved_for_the_last_of_data_first() -> None:
    symbols = DimSymbols({"n"}, Solutions())
    name, size = symbols.of_data("x")
    found = symbols.solve(size, N + 1, with_inputs=True)
    assert isinstance(found, Solved) and (found.name, found.dim, found.of_data) == (name, N + 1, True)
    found = symbols.solve(N, 3, with_inputs=True)
    assert isinstance(found, Solved) and (found.name, found.dim) == ("n", 3)
    assert symbols.solve(N, 3, with_inputs=False) is None, "a branch requires nothing of the inputs"
    assert DimSymbols({"n"}).solve(N, 3, with_inputs=True) is None, "nothing is searched for"
