"""Products of run-time sizes: the checks that are left imply those that are left out."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.passes.memory.extents import (
    MAX_BYTES,
    MAX_ITERATIONS,
    ROUNDING,
    SizeProduct,
    SizeProducts,
    TooManyTerms,
    bound_of,
)
from mirlo.passes.memory.symbols import FunctionSymbols

NAMES = ("m", "n", "k")
SYMBOLS = st.sampled_from(NAMES).map(D.symbol)
NUMBERS = st.integers(-300, 300)


def computed(parts: Any) -> Any:
    """Return dims that are computed from others."""
    return st.one_of(
        st.builds(lambda a, b: a + b, parts, parts),
        st.builds(lambda a, c: a * c, parts, NUMBERS),
        st.builds(lambda a, b: a * b, parts, parts),
        st.builds(lambda a, c: a // c, parts, st.integers(1, 40)),
        st.builds(lambda a, c: a % c, parts, st.integers(1, 40)),
        st.builds(D.minimum, parts, parts),
        st.builds(D.maximum, parts, parts),
    )


DIMS = st.recursive(st.one_of(SYMBOLS, NUMBERS), computed, max_leaves=5)
VALUES = st.fixed_dictionaries({name: st.one_of(st.integers(0, 50), st.integers(0, 2**40)) for name in NAMES})


def value_of(dim: Dim, values: dict[str, int]) -> int:
    found = D.substitute(dim, dict(values))
    assert isinstance(found, int)
    return found


@pytest.mark.sample(0)
@settings(max_examples=400, deadline=None)
@given(DIMS, VALUES)
def test_bounds_of_dims(dim: Dim, values: dict[str, int]) -> None:
    try:
        bound = bound_of(dim)
    except TooManyTerms:
        return
    terms = bound.terms.items()
    found = sum(Fraction(factor) * math.prod(max(values[name], 1) for name in symbols) for symbols, factor in terms)
    assert abs(value_of(dim, values)) <= found * Fraction(ROUNDING)


def holds(product: SizeProduct, values: dict[str, int], room: Fraction = Fraction(1)) -> bool:
    total = product.scale
    for factor in product.factors:
        total *= max(value_of(factor, values), 1)
    return total <= product.limit * room


ENTRIES = st.lists(
    st.tuples(st.lists(DIMS, min_size=1, max_size=3), st.integers(1, 8), st.sampled_from((MAX_BYTES, MAX_ITERATIONS))),
    min_size=1,
    max_size=6,
)


@pytest.mark.sample(0)
@settings(max_examples=300, deadline=None)
@given(ENTRIES, VALUES, st.fixed_dictionaries({name: st.integers(-1, 2) for name in NAMES}))
def test_what_is_left_out_is_implied(entries: list[Any], values: dict[str, int], places: dict[str, int]) -> None:
    """At each place, the checks that are left imply all products of the symbols that are known by then."""
    products = SizeProducts(places.__getitem__)
    for dims, scale, limit in entries:
        products.add(dims, scale, limit, "")
    required = products.required()
    for place in range(-1, 3):
        known = {name for name in NAMES if places[name] <= place}
        if all(holds(product, values) for product in required if product.symbols <= known):
            implied = [product for product in products._largest.values() if product.symbols <= known]
            assert all(holds(product, values, Fraction(ROUNDING)) for product in implied)


def test_computed_dims_of_a_known_size_need_no_checks() -> None:
    """A tensor of n*64 elements bounds all that kernels compute of n."""
    n = D.symbol("n")
    products = SizeProducts(lambda name: -1)
    products.add((n, 64), 4, MAX_BYTES, "tensor")
    for stride in range(1, 20):
        products.add((184 * (n // 16) - stride, 3), 1, MAX_ITERATIONS, "kernel")
    assert [product.text for product in products.required()] == ["tensor"]


def test_sizes_that_are_known_together_bound_each_other() -> None:
    """A tensor of m*n elements bounds what kernels compute of m and of n, if one operation binds both."""
    m, n = D.symbol("m"), D.symbol("n")
    for places, left in (({"m": 1, "n": 1}, 1), ({"m": 0, "n": 1}, 2), ({"m": 1, "n": 0}, 2)):
        products = SizeProducts(places.__getitem__)
        products.add((3, m, n), 4, MAX_BYTES, "tensor")
        for stride in range(4):
            products.add((2048 * ((m + 15) // 16) * ((n + 15) // 16) - stride,), 1, MAX_ITERATIONS, "both")
        products.add((60 * m,), 1, MAX_ITERATIONS, "m")
        products.add((60 * n,), 1, MAX_ITERATIONS, "n")
        assert len(products.required()) == left, places


@pytest.mark.sample(0)
@settings(max_examples=300, deadline=None)
@given(size=DIMS, bound=DIMS, values=st.fixed_dictionaries({name: st.integers(0, 50) for name in NAMES}))
def test_bounds_of_sizes_that_data_determine(size: Dim, bound: Dim, values: dict[str, int]) -> None:
    """A size is at most its bound, for each value of the symbol that the bound of the symbol allows."""
    symbols = FunctionSymbols(["m", "n"], {"k": bound})
    found = symbols.bounded(size)
    most = None if "k" in D.symbols_of(bound) else value_of(bound, values)
    if found is not D.UNKNOWN and most is not None and most >= 0:
        assert symbols.is_early(found)
        for value in {0, most // 2, min(most, 7), most}:
            assert value_of(size, values | {"k": value}) <= value_of(found, values)


def test_sizes_with_a_bound() -> None:
    """What is linear in a symbol that data determine has a bound, also if a factor may be negative."""
    symbols = FunctionSymbols(["m", "n"], {"k": D.parse("n"), "l": D.parse("max(1, m)")})
    sizes = {
        "k*m - k": "n*max(0, m - 1)",
        "k*l*m - k*l": "n*max(1, m)*max(0, m - 1)",
        "m - k": "m",
        "k*k*m - k": "m*n*n",
    }
    for size, bound in sizes.items():
        assert str(symbols.bounded(D.parse(size))) == str(D.parse(bound))
    assert symbols.bounded(D.parse("k*floordiv(max(k, m) + min(l, 7), k)")) is not D.UNKNOWN
    rows = "5*max(4, min(floordiv(floordiv(900, 7*k), 3), floordiv(l + 13, 14)))*k"  # of scores that fit into a cache
    size, bound = D.parse(rows), symbols.bounded(D.parse(rows))
    for m, n in ((0, 1), (1, 200), (90, 3), (400, 2), (2, 400)):
        largest = max(value_of(size, {"k": k, "l": most}) for k in range(1, n + 1) for most in range(max(1, m) + 1))
        assert largest <= value_of(bound, {"m": m, "n": n}) <= max(5 * 4 * n, 5 * 900)
