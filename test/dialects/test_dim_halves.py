"""Halves of dims: n - n//2 is (n + 1)//2, in sums and products of any kind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim

N, M, K = (D.symbol(name) for name in "nmk")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (N - N // 2, (N + 1) // 2),
        (N - (N + 1) // 2, N // 2),
        (N // 2 + (N + 1) // 2, N),
        (3 * N - 2 * (N // 2), N + 2 * ((N + 1) // 2)),
        (N // 2 - N, (N + 1) // 2 * -1),
        ((N - N // 2) * M, (N + 1) // 2 * M),
        (N * M - N * M // 2, (N * M + 1) // 2),
        ((N + 3) - (N + 3) // 2, (N + 4) // 2),
        (N + 1 - (N + 1) // 2, (N + 2) // 2),
        (N // 2 - N // 4, (N // 2 + 1) // 2),
        ((N - N // 2) - (N - N // 2) // 2, (N + 3) // 4),
        ((N - N // 2) * (M - M // 2), (N + 1) // 2 * ((M + 1) // 2)),
        (2 * ((N + 1) // 2) - N, N % 2),
    ],
    ids=str,
)
def test_halves_that_are_equal(one: Dim, other: Dim) -> None:
    assert one == other
    assert str(one) == str(other)


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (N - N // 2, "floordiv(n + 1, 2)"),
        ((N + 1) // 2, "floordiv(n + 1, 2)"),
        (N % 2, "-2*floordiv(n, 2) + n"),
        (8 - N // 2, "-floordiv(n, 2) + 8"),
    ],
)
def test_the_form_that_is_canonical(dim: Dim, text: str) -> None:
    assert str(dim) == text
    assert D.parse(text) == dim


def test_sizes_of_strided_windows_stay_one_quotient() -> None:
    size: Dim = N
    for _ in range(5):
        size = (size - 1) // 2 + 1
    assert size == (N + 31) // 32


@pytest.mark.parametrize("divisor", [2, 4, 8, 16])
def test_products_of_quotients_stay_products(divisor: int) -> None:
    n, m = ((dim + divisor - 1) // divisor for dim in (N, M))
    assert str(n * m) == f"{m}*{n}"
    assert str(16 * n * m * K - 3) == f"16*{m}*{n}*k - 3"


def computed(parts: Any) -> Any:
    return st.one_of(
        st.builds(lambda a, b: a + b, parts, parts),
        st.builds(lambda a, b: a - b, parts, parts),
        st.builds(lambda a, b: a * b, parts, parts),
        st.builds(lambda a, c: a * c, parts, st.integers(-3, 3)),
        st.builds(lambda a, c, r: (a + c) // r, parts, st.integers(-3, 4), st.sampled_from((2, 2, 3, 4))),
        st.builds(lambda a, r: a % r, parts, st.sampled_from((2, 4))),
    )


DIMS = st.recursive(st.one_of(st.sampled_from((N, M, K)), st.integers(0, 5)), computed, max_leaves=6)
VALUES = st.fixed_dictionaries({name: st.integers(0, 40) for name in "nmk"})


def value_of(dim: Dim, values: dict[str, int]) -> int:
    found = D.substitute(dim, dict(values))
    assert isinstance(found, int)
    return found


@settings(max_examples=400, deadline=None)
@given(DIMS, DIMS, VALUES)
@pytest.mark.sample(0)
def test_arithmetic_keeps_the_value(one: Dim, other: Dim, values: dict[str, int]) -> None:
    a, b = value_of(one, values), value_of(other, values)
    assert value_of(one + other, values) == a + b
    assert value_of(one - other, values) == a - b
    assert value_of(one * other, values) == a * b
    assert value_of(one - one // 2, values) == a - a // 2


@example((-2 * (K // 2) * ((K + 1) // 2) + K * ((K + 1) // 2)) // 3, N)
@settings(max_examples=400, deadline=None)
@given(DIMS, DIMS)
def test_sums_have_one_form(one: Dim, other: Dim) -> None:
    assert (one + other) - other == one
    assert one + other == other + one
    assert D.parse(str(one)) == one
    if isinstance(one, D.SymbolicDim) and len(one.terms) == 1 and one.terms[0][1] == 1:
        assert one - one // 2 == (one + 1) // 2


@pytest.mark.parametrize("tile", [2**i for i in range(1, 14)])
def test_the_end_of_the_last_tile_is_not_before_the_end(tile: int) -> None:
    """The canonical form of the difference has a quotient for each power of two; the search of its bounds is short."""
    tiles = D.ceildiv(N, tile)
    assert D.is_nonnegative(tiles * tile - N)
    assert not D.is_nonnegative(tiles * tile - N - 1)
    assert D.is_nonnegative(N + tile - 1 - tiles * tile)


@settings(max_examples=200, deadline=None)
@given(DIMS, DIMS, VALUES)
def test_what_is_not_negative_has_no_negative_value(one: Dim, other: Dim, values: dict[str, int]) -> None:
    if D.is_nonnegative(one - other):
        assert value_of(one, values) >= value_of(other, values)
