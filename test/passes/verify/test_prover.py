"""Proofs that index expressions are not negative."""

from __future__ import annotations

import pytest

from mirlo.dialects.bindings import ir, new_context
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.index_expr import IndexExpr, number
from mirlo.passes.bounds.prover import Case, Prover


@pytest.mark.parametrize(
    ("goal", "fact", "holds"),
    [("n*m - m", "n*n - m - 1", False), ("n*n - m", "n*n - m - 1", True), ("n*n*m - m", "n*n - 1", True)],
)
def test_fact_with_a_factor_twice(goal: str, fact: str, holds: bool) -> None:
    """A fact about `n*n` decides about no goal with a single `n`, and is no error."""
    assert Prover().is_nonnegative(number(D.parse(goal)), (number(D.parse(fact)),)) == holds


def test_cases_of_a_condition_beside_those_of_a_minimum() -> None:
    """What a condition chooses has the same case as another value that it chooses, and no other one."""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse("%c = arith.constant true\n%d = arith.constant false")
        condition, other = (op.operation.results[0] for op in module.body.operations)
        prover = Prover()

        def cases(first: int, second: int, choice: ir.Value | None) -> IndexExpr:
            return prover.variable(cases=(Case(number(first)), Case(number(second))), choice=choice)

        chosen = cases(0, 5, condition)
        assert prover.is_nonnegative(chosen - cases(0, 5, condition))
        assert not prover.is_nonnegative(chosen - cases(0, 5, other))
        assert prover.is_nonnegative(cases(5, 6, None) - chosen)
        assert not prover.is_nonnegative(cases(1, 6, None) - chosen)
