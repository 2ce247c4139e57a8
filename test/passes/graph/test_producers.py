"""Rules of graphs are tried only where one of their producers computes an operand: no graph changes by that."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest
from mutated_graphs import graphs, mutated

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.relax import OPS
from mirlo.passes.byoc.operators import is_const, is_op, wildcard
from mirlo.passes.graph import rewrite
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.rules import COMBINE, LAYOUT, RECOGNIZE, SIMPLIFY, Rule
from mirlo.testing.random_graphs import finish, new_graph
from mirlo.testing.random_operators import grow

GRAPHS = dict(graphs())
OPERATORS = frozenset(f"relax.{name}" for name in OPS)
PASSES = "simplify,convert-layout,simplify"
RULES = [rule for book in (RECOGNIZE, SIMPLIFY, COMBINE, LAYOUT) for rule in book if rule.producers is not None]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_are_operators(rule: Rule) -> None:
    assert rule.producers
    assert rule.producers <= OPERATORS


def rewritten(name: str, share: float) -> str | None:
    """Return the text of a graph after the rules, with the shapes that its name draws; None without such shapes."""
    with make_context(), ir.Location.unknown():
        made = mutated(GRAPHS[name], np.random.default_rng(crc32(name.encode())), share)
        if made is None:
            return None
        Pipeline(PASSES).run(made.module, made.session)
        return str(made.module)


@pytest.mark.sample(24)
@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_of_rules(name: str, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each graph is one that a rule takes, or declines."""
    tried = rewritten(name, share)
    monkeypatch.setattr(rewrite, "_producers", lambda op: OPERATORS)
    assert tried == rewritten(name, share)


def random_graph(seed: int) -> str:
    with make_context(), ir.Location.unknown():
        graph = new_graph(seed, "f32")
        with ir.InsertionPoint(graph.function.entry_block):
            grow(graph, count=4 + seed % 12)
            finish(graph)
        Pipeline(PASSES).run(graph.module)
        return str(graph.module)


@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = random_graph(seed)
    monkeypatch.setattr(rewrite, "_producers", lambda op: OPERATORS)
    assert tried == random_graph(seed)


def test_of_patterns() -> None:
    x = wildcard().named("x")
    product, quotient = is_op("relax.multiply"), is_op("relax.divide")
    exponential = is_op("relax.exp")(x)
    assert product(x, exponential).producers("relax.multiply") == {"relax.exp"}
    assert product(x, exponential).producers("relax.divide") == frozenset()
    both = product(x, exponential) | quotient(is_op("relax.log")(x), x)
    assert both.producers("relax.divide") == {"relax.log"}
    # Any operator may compute what has a label, which another part decides, and what may be absent.
    assert product(x, wildcard()).producers("relax.multiply") is None
    assert product(x, exponential.named("e")).producers("relax.multiply") is None
    assert (product(x, x) | product(x, exponential)).producers("relax.multiply") is None
    assert is_op("relax.multiply").producers("relax.multiply") is None
    assert product(x, is_const(1)).producers("relax.multiply") in (None, {"relax.constant"})


def test_no_operand() -> None:
    """An operator without operands has no producers: rules that need one decline it."""
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(
            'func.func @f() { %0 = "relax.constant"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32> return }'
        )
        [function] = module.body.operations
        constant = function.regions[0].blocks[0].operations[0]
        assert rewrite._producers(constant.operation) == frozenset()
