"""A fault of a rule of Mirlo that a model does not need: a decline with the rule's name; in tests, an error."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.graph.rewrite import rewrite
from mirlo.passes.rules import DISPENSABLE, Decline, Fault, RuleBook, RuleError, RuleWarning, decline, run_rule
from mirlo.passes.session import Session

TEXT = """
func.func @main(%x: tensor<4xf32>, %y: tensor<3xf32>) -> tensor<4xf32> {
  %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
FAULTS: dict[str, Callable[..., object]] = {
    "raised KeyError: 'x'": lambda op, b: {}["x"],
    "returned nothing": lambda op, b: None,
    "returned 2 values for 1 results": lambda op, b: [op.x, op.x],
    "returned a int for result #0": lambda op, b: 3,
    "returned tensor<3xf32> for result #0, which is tensor<4xf32>": lambda op, b: b.op.operation.block.arguments[1],
    "returned result #0 itself": lambda op, b: op.operation.results[0],
}


@pytest.mark.parametrize("problem", FAULTS)
@pytest.mark.parametrize("kind", sorted(DISPENSABLE))
@pytest.mark.parametrize(("is_strict", "defined"), [(True, "mirlo.own"), (False, "mirlo.own"), (False, "users")])
def test_faults(kind: str, problem: str, is_strict: bool, defined: str) -> None:
    warnings.simplefilter("error" if is_strict else "always", RuleWarning)

    def wrong(op: object, b: object) -> object:
        return FAULTS[problem](op, b)

    def right(op: ir.OpView, b: object) -> object:
        return op.x

    wrong.__module__ = defined
    book = RuleBook(kind)
    book.add("relax.relu", "default", wrong, priority=1)
    book.add("relax.relu", "default", right)
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(TEXT)
        function = module.body.operations[0]
        if is_strict or defined == "users":
            with pytest.raises(RuleError, match=f"wrong for .* at .*test_faults.py:.* {problem[:20]}"):
                rewrite(function, book, Session())
            return
        with pytest.warns(RuleWarning, match="wrong for relax.relu on default' at .* is compiled without"):
            assert rewrite(function, book, Session()) == 1
        assert "relax.relu" not in str(function)


def test_other_kinds_need_their_rules() -> None:
    warnings.simplefilter("always", RuleWarning)

    def wrong(op: object, b: object) -> Decline:
        raise KeyError("x")

    wrong.__module__ = "mirlo.own"
    rule = RuleBook("legalize").add("relax.relu", "default", wrong)
    with pytest.raises(RuleError, match="raised KeyError"):
        run_rule(rule, None, None)


def test_a_decline_is_no_fault() -> None:
    warnings.simplefilter("always", RuleWarning)

    def declining(op: object, b: object) -> Decline:
        return decline("not today")

    outcome = run_rule(RuleBook("simplify").add("relax.relu", "default", declining), None, None)
    assert isinstance(outcome, Decline) and not isinstance(outcome, Fault)
