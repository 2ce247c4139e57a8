"""Products of run-time sizes: the checks that are left imply those that are left out."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.passes.memory.extents import MAX_BYTES, MAX_ITERATIONS, SizeProduct, SizeProducts, _magnitude

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


@settings(max_examples=400, deadline=None)
@given(DIMS, VALUES)
def test_magnitudes_are_bounds(dim: Dim, values: dict[str, int]) -> None:
    scale, symbols = _magnitude(dim)
    bound = scale
    for name, count in symbols.items():
        bound *= max(values[name], 1) ** count
    assert max(abs(value_of(dim, values)), 1) <= bound


def holds(product: SizeProduct, values: dict[str, int]) -> bool:
    total = product.scale
    for factor in product.factors:
        total *= max(value_of(factor, values), 1)
    return total <= product.limit


ENTRIES = st.lists(
    st.tuples(st.lists(DIMS, min_size=1, max_size=3), st.integers(1, 8), st.sampled_from((MAX_BYTES, MAX_ITERATIONS))),
    min_size=1,
    max_size=6,
)


@settings(max_examples=300, deadline=None)
@given(ENTRIES, VALUES)
def test_what_is_left_out_is_implied(entries: list[Any], values: dict[str, int]) -> None:
    products = SizeProducts(lambda dim: True)
    for dims, scale, limit in entries:
        products.add(dims, scale, limit, "")
    if all(holds(product, values) for product in products.required()):
        assert all(holds(product, values) for product in products._largest.values())


def test_computed_dims_of_a_known_size_need_no_checks() -> None:
    """A tensor of n*64 elements bounds all that kernels compute of n."""
    n = D.symbol("n")
    products = SizeProducts(lambda dim: True)
    products.add((n, 64), 4, MAX_BYTES, "tensor")
    for stride in range(1, 20):
        products.add((184 * (n // 16) - stride, 3), 1, MAX_ITERATIONS, "kernel")
    assert [product.text for product in products.required()] == ["tensor"]
