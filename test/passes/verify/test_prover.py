"""Proofs that index expressions are not negative."""

from __future__ import annotations

import pytest

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.index_expr import number
from mirlo.passes.bounds.prover import Prover


@pytest.mark.parametrize(
    ("goal", "fact", "holds"),
    [("n*m - m", "n*n - m - 1", False), ("n*n - m", "n*n - m - 1", True), ("n*n*m - m", "n*n - 1", True)],
)
def test_fact_with_a_factor_twice(goal: str, fact: str, holds: bool) -> None:
    """A fact about `n*n` decides about no goal with a single `n`, and is no error."""
    assert Prover().is_nonnegative(number(D.parse(goal)), (number(D.parse(fact)),)) == holds
