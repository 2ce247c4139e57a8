"""What ranges of indices decide: what holds for each number in them, and nothing else."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from itertools import combinations_with_replacement

import pytest

from mirlo.passes.schedule.blocks.instance import _TRUE_WHEN, _is_beyond, _is_within

# The predicates of `arith.cmpi`, in the order of its attribute; those of unsigned numbers follow.
PREDICATES = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
RANGES = tuple(combinations_with_replacement(range(-4, 5), 2))


def common(values: Iterable[bool]) -> bool | None:
    """Return the value that all have."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


@pytest.mark.parametrize("number", range(len(PREDICATES)))
def test_comparisons(number: int) -> None:
    decide: Callable[[int, int], bool | None] = _TRUE_WHEN[number]
    for low, high in RANGES:
        assert decide(low, high) == common(PREDICATES[number](x, 0) for x in range(low, high + 1)), (low, high)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_positions(size: int) -> None:
    for low, high in RANGES:
        inside = common(x in range(size) for x in range(low, high + 1))
        assert _is_within(low, high, size) == (inside is True), (low, high)
        # What is partly below the axis and partly above it is not known to be beyond.
        assert _is_beyond(low, high, size) == (inside is False and not low < 0 <= high), (low, high)
