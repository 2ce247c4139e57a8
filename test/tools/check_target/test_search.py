"""The search for cases: every kind of condition that a rule may have is met by construction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mirlo.dialects.core.traits import Trait
from mirlo.dialects.relax import OPS
from mirlo.extend import LEGALIZE, decline, legalize
from mirlo.passes.rules import Rule
from mirlo.tools.conformance.check import names
from mirlo.tools.conformance.derived import derive_cases, expected
from mirlo.tools.conformance.kernels import kernel_case
from mirlo.tools.conformance.search import search


def taken(rule: Rule) -> list[str]:
    names()
    try:
        return [case.name for case, outcome in search(rule, [], "llvm") if outcome.error is None]
    finally:
        rules = LEGALIZE._rules.get((rule.subject, rule.target), [])
        rules[:] = [other for other in rules if other is not rule]


def own(subject: str, function: Any) -> Rule:
    legalize(subject, target="llvm", priority=1000)(function)
    return next(rule for rule in LEGALIZE.candidates(subject, ("llvm",)) if rule.function is function)


def test_many_operands() -> None:
    def many(op: Any, b: Any) -> Any:
        if len(op.xs) < 12:
            return decline("few operands")
        half = len(op.xs) // 2
        parts = [OPS["concat"].make(list(xs), axis=op.axis) for xs in (op.xs[:half], op.xs[half:])]
        return OPS["concat"].make(parts, axis=op.axis)

    assert set(taken(own("relax.concat", many))) == {"relax.concat"}


def test_large_tiles() -> None:
    def tiled(op: Any, b: Any) -> Any:
        if any(dim % 32 for dim in op.x.type.shape):
            return decline("whole tiles only")
        return OPS["maximum"].make(op.x, OPS["full"].make(shape=(1,), value=0.0, dtype="f32"))

    assert taken(own("relax.relu", tiled)) == ["relax.relu"] * 1


def test_nothing_is_found_for_a_rule_that_always_declines() -> None:
    assert taken(own("relax.softsign", lambda op, b: decline("never"))) == []


@pytest.mark.parametrize("steps", [("product", "map", "product"), ("rows", "product"), ("map", "rows")])
def test_kernels_mean_what_numpy_says(steps: tuple[str, ...]) -> None:
    case = kernel_case(steps, np.random.default_rng(0))
    assert len(case.arrays) == 1 + steps.count("product")
    assert np.isfinite(case.expected[0]).all() and case.expected[0].shape[0] == case.arrays[0].shape[0]


def test_meanings_of_elementwise_operators_are_derived() -> None:
    derive_cases()
    x = np.array([-1.0, 2.0], np.float32)
    (result,) = expected(OPS["leaky_relu"], [x], {"alpha": 0.5})
    np.testing.assert_array_equal(result, [-0.5, 2.0])
    assert all(op.meaning is not None for op in OPS.values() if Trait.ELEMENTWISE in op.TRAITS)
