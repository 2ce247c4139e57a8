"""Arithmetic on sizes: decisions hold for all values of the symbols."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.frontends.sizes import (
    FRACTION_ARITHMETIC,
    FRACTION_FUNCTIONS,
    DimFraction,
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


FRACTIONS = (
    DimFraction(3), DimFraction(-5, 4), DimFraction(0), DimFraction(1, 2), DimFraction(N), DimFraction(N * 2 - 7, 4),
    DimFraction(N + M, 8), DimFraction(M * 6, 4),
)  # fmt: skip


def _rational(fraction: DimFraction, values: dict[str, Dim]) -> Fraction:
    dim = fraction.numerator
    number = dim if isinstance(dim, int) else D.substitute(dim, values)
    assert isinstance(number, int)
    return Fraction(number, fraction.denominator)


OF_TWO: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "maximum": max, "minimum": min,
}  # fmt: skip
OF_ONE: dict[str, Callable[[Fraction], Fraction]] = {
    "ceil": lambda x: Fraction(math.ceil(x)), "floor": lambda x: Fraction(math.floor(x)),
    "relu": lambda x: max(x, Fraction(0)), "negative": operator.neg,
}  # fmt: skip


def test_fractions_compute_as_rational_numbers() -> None:
    assert OF_TWO.keys() == FRACTION_ARITHMETIC.keys() and OF_ONE.keys() == FRACTION_FUNCTIONS.keys()
    for values in ({"n": 1, "m": 9}, {"n": 8, "m": 3}, {"n": 13, "m": 6}):
        for x in FRACTIONS:
            for name, exact in OF_ONE.items():
                assert _rational(FRACTION_FUNCTIONS[name](x), values) == exact(_rational(x, values))
            for y in FRACTIONS:
                for name, exact in OF_TWO.items():
                    try:
                        result = FRACTION_ARITHMETIC[name](x, y)
                    except Undecided:
                        assert name in ("multiply", "divide")
                        continue
                    assert _rational(result, values) == exact(_rational(x, values), _rational(y, values)), (x, name, y)


@pytest.mark.parametrize("number", range(-2, 33))
def test_dims_are_divided_by_powers_of_two(number: int) -> None:
    if number in (1, 2, 4, 8, 16, 32):
        assert DimFraction(N * 4, 2) / DimFraction(number) == DimFraction.of(N * 2, number)
        assert DimFraction(N) / DimFraction(number, 8) == DimFraction.of(N * 8, number)
    else:
        with pytest.raises(Undecided):
            DimFraction(N) / DimFraction(number)


def test_integers_towards_zero() -> None:
    assert DimFraction(N).truncated() == N and DimFraction(N - 9).truncated() == N - 9
    assert DimFraction(N, 4).truncated() == N // 4 and DimFraction(7, 2).truncated() == 3
    with pytest.raises(Undecided):
        DimFraction(N - 9, 2).truncated()
    with pytest.raises(Undecided):
        DimFraction(N) * DimFraction(M)
