"""The search for cases: every kind of condition that a rule may have is met by construction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mirlo.dialects.core.traits import Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.tree import NAN_BY_NODE
from mirlo.extend.rules import LEGALIZE, decline, legalize
from mirlo.passes.byoc.operators import is_const, is_op, wildcard
from mirlo.passes.rules import Rule
from mirlo.tools.conformance import case_search
from mirlo.tools.conformance.case import TABLE, UndefinedResult
from mirlo.tools.conformance.case_search import GraphCase
from mirlo.tools.conformance.check import names, own_rules
from mirlo.tools.conformance.derivations import graphs_of
from mirlo.tools.conformance.derived import derive_cases, evaluate, expected
from mirlo.tools.conformance.kernels import kernel_case
from mirlo.tools.conformance.programs import CompiledPrograms, compile_programs, operator_program
from mirlo.tools.conformance.rule_search import RuleSearch, trusted_target
from mirlo.tools.conformance.search import search
from mirlo.tools.conformance.typed_graphs import Lattice, TypedGraph, typed_graph, with_dynamic_dims
from mirlo.tools.conformance.values import Arrays, again, compute, drawn, draws, expectations


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


@pytest.mark.sample(0)
def test_many_operands() -> None:
    def many(op: Any, b: Any) -> Any:
        if len(op.xs) < 12:
            return decline("few operands")
        half = len(op.xs) // 2
        parts = [OPS["concat"].make(list(xs), axis=op.axis) for xs in (op.xs[:half], op.xs[half:])]
        return OPS["concat"].make(parts, axis=op.axis)

    assert set(taken(own("relax.concat", many))) == {"relax.concat"}


@pytest.mark.sample(0)
def test_large_tiles() -> None:
    def tiled(op: Any, b: Any) -> Any:
        if any(dim % 32 for dim in op.x.type.shape):
            return decline("whole tiles only")
        return OPS["maximum"].make(op.x, OPS["full"].make(shape=(1,), value=0.0, dtype="f32"))

    assert taken(own("relax.relu", tiled)) == ["relax.relu"] * 1


@pytest.mark.sample(0)
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


def test_references_are_compiled_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations without a reference in numpy take one compilation, whatever their sizes and attributes."""
    counts: list[int] = []

    def compiling(programs: Any, *rest: Any) -> CompiledPrograms:
        counts.append(len(programs))
        return compile_programs(programs, *rest)

    monkeypatch.setattr(case_search, "compile_programs", compiling)
    monkeypatch.setattr(OPS["cumsum"], "meaning", None)
    names()
    search = RuleSearch("sums", "llvm", "llvm", rule=own("relax.cumsum", lambda op, b: decline("never")))
    LEGALIZE._rules["relax.cumsum", "llvm"].remove(search.rule)
    graph, _ = graphs_of([is_op("relax.cumsum")(wildcard())])
    cases: list[tuple[TypedGraph, Arrays]] = []
    for tile in (1, 8, 16):
        typed = typed_graph(graph[0], "f32", Lattice(tile), search.random)
        assert typed is not None
        cases.append((typed, drawn(typed, search.random, 0)))
    search._prepare_references(cases)
    results = [compute(typed, arrays, search._by_host)[0] for typed, arrays in cases]
    assert counts == [len(search.references)] and counts[0] > 1
    for (typed, arrays), result in zip(cases, results, strict=True):
        attributes = typed.attributes[typed.graph.operations[0]]
        assert not attributes.get("exclusive") and not attributes.get("reverse")
        wanted = np.cumsum(arrays[typed.arguments[0]].astype(np.float64), int(str(attributes["axis"])))
        np.testing.assert_allclose(result, wanted, rtol=1e-5)


def test_references_of_dynamic_dims_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One compilation gives the references of all sizes, in f64 for all floats."""
    compiled: list[str] = []

    def compiling(programs: Any, target: str, threads: int = 1) -> CompiledPrograms:
        compiled.extend(f"{kind}" for program in programs for kind in program.argument_types if threads == 1)
        return compile_programs(programs, target, threads)

    monkeypatch.setattr(case_search, "compile_programs", compiling)
    monkeypatch.setattr(OPS["cumsum"], "meaning", None)
    names()
    search = RuleSearch("sums", "llvm", "llvm", rule=own("relax.cumsum", lambda op, b: decline("never")))
    LEGALIZE._rules["relax.cumsum", "llvm"].remove(search.rule)
    graph, _ = graphs_of([is_op("relax.cumsum")(wildcard())])
    typed = typed_graph(graph[0], "f16", Lattice(), search.random)
    assert typed is not None
    dynamic, axes = next(with_dynamic_dims(typed))
    case = GraphCase("dynamic 0", dynamic, drawn(typed, search.random, 0), axes)
    search._prepare_sizes([case], [[search._sized(case, size)] for size in (3, 7)])
    assert len(compiled) == 1 and compiled[0].startswith("f64[n_dynamic_0_0, "), compiled
    for size in (3, 7):
        sized = search._sized(case, size)
        assert sized is not None
        (expected,) = expectations(sized.typed, sized.arrays, search._by_host)
        (x,) = sized.given(sized.arrays)
        attributes = typed.attributes[typed.graph.operations[0]]
        wanted = np.cumsum(x.astype(np.float64), int(str(attributes["axis"])))
        assert expected.error_in(wanted) is None and expected.error_in(wanted + 1) is not None
    assert len(compiled) == 1


def logarithm_of_a_difference(x: list[float], dtype: str = "f32") -> tuple[TypedGraph, Arrays]:
    """Return cast(log(x - 1))."""
    names()
    difference = is_op("relax.subtract")(wildcard(), is_const(1.0))
    graph, _ = graphs_of([is_op("relax.cast").has_attr(dtype=dtype)(is_op("relax.log")(difference))])
    typed = typed_graph(graph[0], "f32", Lattice(), np.random.default_rng(0))
    assert typed is not None
    wanted = {leaf: kind.with_shape([len(x)] if leaf in typed.arguments else []) for leaf, kind in typed.types.items()}
    sized = typed.with_types(wanted)
    assert sized is not None
    return sized, {leaf: np.array(x if leaf in sized.arguments else 1.0, np.float32) for leaf in sized.types}


def no_host(*given: Any) -> Any:
    raise AssertionError("all of these have a reference in numpy")


def test_nan_of_an_operation_outside_its_domain_is_not_compared() -> None:
    """What a code generator computes from NaN is not specified: oneDNN's relu returns zero."""
    typed, arrays = logarithm_of_a_difference([2.0, 0.5, 1.0 + np.exp(1.0)])
    (expected,) = expectations(typed, arrays, no_host)
    assert expected.error_in(np.array([0, 77, 1], np.float32)) is None
    assert expected.error_in(np.array([0, np.nan, 1], np.float32)) is None
    assert expected.error_in(np.array([0.5, 77, 1], np.float32)) is not None
    assert expected.error_in(np.array([np.nan, 77, 1], np.float32)) is not None


def test_integers_made_of_nan_are_not_compared() -> None:
    typed, arrays = logarithm_of_a_difference([2.0, 0.5, 4.0], "i32")
    with pytest.raises(ValueError, match="'relax.cast' makes i32 of NaN"):
        expectations(typed, arrays, no_host)
    typed, arrays = logarithm_of_a_difference([2.0, 5.0, 4.0], "i32")
    assert expectations(typed, arrays, no_host)[0].exact.tolist() == [0, 1, 1]


def test_a_declared_error_is_what_later_operations_make_of_it() -> None:
    """The difference may be off by 0.01 of the largest, 9: its power by a factor of 1.094."""
    names()
    graph, _ = graphs_of([is_op("relax.exp")(is_op("relax.subtract")(wildcard(), wildcard()))])
    typed = typed_graph(graph[0], "f32", Lattice(), np.random.default_rng(0))
    assert typed is not None
    typed = typed.with_types({leaf: kind.with_shape([2]) for leaf, kind in typed.types.items()})
    assert typed is not None
    arrays = {leaf: np.array(x, np.float32) for leaf, x in zip(typed.types, ([9, 2], [0, 2]), strict=True)}
    (expected,) = expectations(typed, arrays, no_host, 0.01)
    largest, least = np.exp(9.0), 1.0
    assert expected.error_in(np.array([1.09 * largest, least], np.float32)) is None
    assert expected.error_in(np.array([1.11 * largest, least], np.float32)) is not None
    assert expected.error_in(np.array([1.10 * largest, 1.09 + 0.01 * largest], np.float32), 0.01) is None
    assert expected.error_in(np.array([1.11 * largest, least], np.float32), 0.01) is not None


@pytest.mark.parametrize("mode", [-1, *range(6), 8, 11, NAN_BY_NODE, NAN_BY_NODE + 3])
def test_the_reference_of_trees(mode: int) -> None:
    names()
    random = np.random.default_rng(mode + 1)
    x = random.integers(-1, 2, (40, 3)).astype(np.float64)
    x[random.random(x.shape) < 0.2] = np.nan
    inner, leaves, roots = 9, 5, np.array([0, 3, -2])
    thresholds = random.integers(-1, 2, inner).astype(np.float64)
    # What follows a node is after it: no cycle.
    later = [[int(random.choice([*range(i + 1, inner), *range(-leaves, 0)])) for _ in "tf"] for i in range(inner)]
    kinds = random.integers(0, 6, inner) + 8 * random.integers(0, 2, inner)
    nodes = np.column_stack([random.integers(0, 3, inner), kinds, np.array(later)])
    weights = random.integers(-8, 9, (leaves, 2)).astype(np.float64)
    tests = [float.__le__, float.__lt__, float.__ge__, float.__gt__, float.__eq__, float.__ne__]

    def leaf(row: np.ndarray, at: int) -> int:
        while at >= 0:
            value, own = float(row[nodes[at, 0]]), int(nodes[at, 1])
            how = own if mode < 0 else (mode & 7) + (own & 8) if mode & NAN_BY_NODE else mode
            at = nodes[at, 2 if tests[how & 7](value, float(thresholds[at])) or (how & 8 and value != value) else 3]
        return -1 - at

    reached = np.array([[weights[leaf(row, root)] for root in roots] for row in x])
    for aggregate, combined in (("sum", np.sum), ("min", np.min), ("max", np.max)):
        operands = (x, thresholds, nodes, roots, weights)
        (made,) = evaluate("tree_ensemble", operands, {"mode": mode, "aggregate": aggregate})
        np.testing.assert_array_equal(made, combined(reached, 1))


def test_trees_that_are_drawn_have_no_cycle() -> None:
    """A target would go round in one for ever."""
    names()
    graph, _ = graphs_of([is_op("relax.tree_ensemble")(*[wildcard()] * 5)])
    random = np.random.default_rng(0)
    typed = typed_graph(graph[0], "f32", Lattice(), random)
    assert typed is not None
    nodes = next(leaf for leaf, kind in typed.types.items() if kind.shape[1:] == (4,))
    orders = set()
    for arrays in draws(typed, random, no_host):
        for is_constant in (False, True) * 10:
            other = again(typed, arrays, random, is_constant)
            compute(typed, other, no_host)
            orders.add(other[nodes].tobytes())
    cyclic = arrays | {nodes: np.zeros_like(arrays[nodes])}
    with pytest.raises(UndefinedResult, match="the nodes of 'relax.tree_ensemble' form a cycle"):
        compute(typed, cyclic, no_host)
    assert len(orders) > 1


def test_symbols_in_expressions_are_the_own_ones_of_a_program() -> None:
    kind = TensorType.of(["2*n + 1", "n", 3], "f32")
    assert str(case_search._renamed(kind, "dynamic 1")) == "f32[2*n_dynamic_1 + 1, n_dynamic_1, 3]"


@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("name", ["isinf", "isfinite", "hardmax", "isnan"])
def test_elements_that_are_not_finite_are_drawn_where_cases_have_them(name: str, kind: str) -> None:
    names()
    graph, _ = graphs_of([is_op(f"relax.{name}")(wildcard())])
    search = RuleSearch("any", "llvm", "llvm", rule=own(f"relax.{name}", lambda op, b: decline("never")))
    LEGALIZE._rules[f"relax.{name}", "llvm"].remove(search.rule)
    typed = typed_graph(graph[0], kind, Lattice(), search.random)
    assert typed is not None
    arrays = drawn(typed, search.random, 0)
    (x,) = (array.astype(np.float64) for array in arrays.values())
    assert 0 < np.isinf(x).sum() < x.size / 2 and not np.isnan(x).any()
    dynamic, axes = next(with_dynamic_dims(typed))
    sized = search._sized(GraphCase("one", dynamic, arrays, axes), 9)
    assert sized is not None


@pytest.mark.parametrize(("factor", "is_exact"), [(-1.0, True), (-1.5, False)])
def test_rules_of_packages_are_compared_exactly(factor: float, is_exact: bool) -> None:
    """What a rule makes of an operator is compared on residues with what the default rule does, too."""
    names()

    def scaled(op: Any, b: Any) -> Any:
        return b.call_prim(lambda p, x: p.compute(x.shape, lambda *i: x[i] * factor, name="scaled"), op.x)

    rule = own("relax.negative", scaled)
    try:
        check = RuleSearch("rule", "llvm", "llvm", rule=rule, operators=("relax.negative",)).check()
    finally:
        rules = LEGALIZE._rules[rule.subject, rule.target]
        rules[:] = [other for other in rules if other is not rule]
    texts = [text for each in check.kinds.values() for text in each]
    assert any(text.endswith(", exactly") for text in texts) != is_exact


@pytest.mark.parametrize("target", ["c", "llvm", "nvvm", "spirv"])
def test_references_need_no_schedule_of_the_target(target: str) -> None:
    names()
    example = TABLE.cases("attention", "f32")[0]
    rule = own_rules(target, [], schedules=True)[0]
    search_of_rule = RuleSearch("", target, trusted_target(target), rule=rule)
    program = operator_program("attention", example)
    found = search_of_rule._compile_references({"attention": program})["attention"].compute(program.arrays)
    np.testing.assert_allclose(found, example.expected, rtol=1e-5)
