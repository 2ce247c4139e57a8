"""Index expressions against brute force: every canonical form against all values of its variables."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from mirlo.dialects.core.dims import symbol
from mirlo.dialects.core.index_expr import (
    IndexExpr,
    ceil_divide,
    contiguous_strides,
    flatten,
    floor_divide,
    larger,
    loop_index,
    modulo,
    number,
)

pytest.importorskip("hypothesis")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

NAMES = ("a", "b", "c")
Point = Mapping[str, int]


@dataclass(frozen=True)
class Spelled:
    """An expression as a tree of operations, with the meaning of each operation in plain Python."""

    make: Callable[[Any], IndexExpr]
    """From extents, or None, to the canonical form."""
    value: Callable[[Point], int]
    text: str

    def __repr__(self) -> str:
        return self.text


LEAVES = st.one_of(
    st.sampled_from(NAMES).map(lambda n: Spelled(lambda e: loop_index(n), lambda p: p[n], n)),
    st.integers(-9, 9).map(lambda c: Spelled(lambda e: number(c), lambda p: c, str(c))),
)
DIVISIONS = {
    "//": (floor_divide, lambda x, n: x // n),
    "^/": (ceil_divide, lambda x, n: -(-x // n)),
    "%": (modulo, lambda x, n: x % n),
}


def combined(inner: Any) -> Any:
    """Return a strategy for expressions with these operands."""

    def add(left: Spelled, right: Spelled, sign: int) -> Spelled:
        return Spelled(
            lambda e: left.make(e) + right.make(e) * sign, lambda p: left.value(p) + sign * right.value(p),
            f"({left} + {sign}*{right})",
        )  # fmt: skip

    def scale(left: Spelled, factor: int) -> Spelled:
        return Spelled(lambda e: left.make(e) * factor, lambda p: left.value(p) * factor, f"({left} * {factor})")

    def divide(left: Spelled, kind: str, n: int) -> Spelled:
        made, plain = DIVISIONS[kind]
        return Spelled(lambda e: made(left.make(e), n, e), lambda p: plain(left.value(p), n), f"({left} {kind} {n})")

    return st.one_of(
        st.builds(add, inner, inner, st.sampled_from([1, -1])),
        st.builds(scale, inner, st.integers(-4, 4)),
        st.builds(divide, inner, st.sampled_from(sorted(DIVISIONS)), st.integers(1, 8)),
    )


EXPRESSIONS = st.recursive(LEAVES, combined, max_leaves=6)
EXTENTS = st.fixed_dictionaries({name: st.integers(1, 6) for name in NAMES})


def points(extents: Mapping[str, int]) -> list[Point]:
    return [
        dict(zip(extents, values, strict=True)) for values in itertools.product(*(range(n) for n in extents.values()))
    ]


def evaluate(expression: IndexExpr, point: Point) -> int:
    found = expression.substitute(lambda name: number(point[name]))
    assert found.is_constant
    return found.constant


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS, EXTENTS, st.booleans())
def test_canonical_form_keeps_all_values(spelled: Spelled, extents: dict[str, int], uses_ranges: bool) -> None:
    expression = spelled.make(extents if uses_ranges else None)
    for point in points(extents):
        assert evaluate(expression, point) == spelled.value(point), (str(expression), point)
        assert eval(str(expression), dict(point)) == spelled.value(point), str(expression)


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS, EXTENTS, st.booleans())
def test_ranges_hold_all_values(spelled: Spelled, extents: dict[str, int], uses_ranges: bool) -> None:
    expression = spelled.make(extents if uses_ranges else None)
    values = {spelled.value(point) for point in points(extents)}
    found = expression.value_range(extents)
    assert found.low <= min(values) and max(values) <= found.high, str(expression)
    assert expression.divisions or found.is_exact, "affine expressions have tight bounds"
    assert not found.is_exact or (found.low, found.high) == (min(values), max(values)), str(expression)
    assert not found.is_dense or values == set(range(found.low, found.high + 1)), str(expression)


@settings(max_examples=100, deadline=None)
@given(EXPRESSIONS, EXPRESSIONS, EXTENTS, st.integers(1, 8))
def test_equal_values_have_equal_forms(x: Spelled, y: Spelled, extents: dict[str, int], divisor: int) -> None:
    left, right = x.make(extents), y.make(extents)
    assert left + right - right == left
    assert left * 3 - left == left * 2
    assert hash(left + right) == hash(right + left) and left + right == right + left
    assert floor_divide(left, divisor, extents) * divisor + modulo(left, divisor, extents) == left
    assert floor_divide(left * divisor + 1, divisor) == left or divisor == 1


@settings(max_examples=100, deadline=None)
@given(EXPRESSIONS, st.fixed_dictionaries({name: LEAVES for name in NAMES}), EXTENTS)
def test_substitution_composes(spelled: Spelled, inner: dict[str, Spelled], extents: dict[str, int]) -> None:
    replaced = spelled.make(None).substitute(lambda name: inner[name].make(None))
    for point in points(extents):
        between = {name: inner[name].value(point) for name in NAMES}
        assert evaluate(replaced, point) == spelled.value(between)


@settings(max_examples=100, deadline=None)
@given(EXPRESSIONS, EXPRESSIONS, EXTENTS)
def test_what_is_called_larger_is(x: Spelled, y: Spelled, extents: dict[str, int]) -> None:
    left, right = x.make(extents), y.make(extents)
    found = larger(left, right, extents)
    for point in points(extents) if found is not None else ():
        assert evaluate(found, point) == max(x.value(point), y.value(point))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(2, 5), min_size=1, max_size=4))
def test_a_flat_index_splits_into_its_indices(shape: list[int]) -> None:
    """Whatever the shape, division and remainder of the flat position give back each index."""
    strides = contiguous_strides(shape)
    flat = flatten([loop_index(i) for i in range(len(shape))], strides)
    for axis, (stride, extent) in enumerate(zip(strides, shape, strict=True)):
        index = modulo(floor_divide(flat, stride, shape), extent, shape) if axis else floor_divide(flat, stride, shape)
        assert index == loop_index(axis)


def test_a_dynamic_extent_bounds_a_range() -> None:
    n = symbol("n")
    found = (loop_index("a") * 4 + 1).range({"a": n})
    assert found == (1, 4 * n - 3)


def test_remainders_are_printed_as_such() -> None:
    a, b = loop_index("a"), loop_index("b")
    assert str(modulo(a * 3 + b, 8) * 2 + floor_divide(a, 4)) == "2*((3*a + b) % 8) + (a) // 4"
    assert str(floor_divide(a, 4) * 4 + modulo(a, 4)) == "a"
