"""The rules of graphs, compared where they apply: those of examples for each rule, and of random graphs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.dialects.tir.compute import PrimBuilder, TensorExpr, exp, maximum
from mirlo.passes.apply_rules import RULE_WATCH
from mirlo.passes.exact import graph_function
from mirlo.passes.exact.compare_graphs import compare_passes, first_wrong
from mirlo.passes.exact.compare_rules import RuleComparison, RuleVerdict
from mirlo.passes.exact.named_numbers import named
from mirlo.passes.exact.primes import VALUES
from mirlo.passes.exact.verdict import DIFFERENT, EQUAL, OUTSIDE
from mirlo.passes.graph.rewrite import Rewriter, rewrite_by
from mirlo.passes.legalize.builder import LegalizeBuilder
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.rules import LEGALIZE, RuleBook, RuleFunction, legalize
from mirlo.passes.session import Session
from mirlo.runtime.params import ParameterStore
from mirlo.targets.llvm.winograd.matrices import transformed_weight
from mirlo.testing import random_graphs
from mirlo.testing.random_operators import grow

GRAPHS = Path(__file__).parents[1] / "graph"
PASSES = "builtin.module(func.func(simplify,fold-constant,simplify,convert-layout,fold-constant,simplify))"
_PARAM = re.compile(r'param = "([^"]*)"\}? : \(\) -> tensor<([0-9x]*)x([a-z][A-Za-z0-9]*)>')


def verdicts_of(text: str) -> list[RuleVerdict]:
    """Return the verdicts of the rules that the passes of graphs apply to a module; its weights are small integers."""
    params, rng = ParameterStore(), np.random.default_rng(0)
    text = _PARAM.sub(lambda match: match[0].replace(f'"{match[1]}"', f'"{match[1]} {match[2]}"'), text)
    for name, shape, kind in _PARAM.findall(text):
        if name not in params:
            dtype = DTYPES[kind.replace("ui", "u").lower()].to_numpy()
            params.add(name, rng.integers(1, 5, [int(dim) for dim in shape.split("x")]).astype(dtype))
    with make_context(), ir.Location.unknown():
        watch = RuleComparison()
        session = Session(params, options={RULE_WATCH: watch}, report=lambda *_: None)
        Pipeline(PASSES).run(ir.Module.parse(text), session)
    return watch.verdicts


@pytest.mark.parametrize("path", sorted(GRAPHS.glob("simplify-*.mlir")), ids=lambda path: path.stem)
def test_rules_of_examples_keep_values(path: Path) -> None:
    """Each rule of `simplify` has examples here: none changes a value."""
    verdicts = [verdict for text in path.read_text().split("// -----") for verdict in verdicts_of(text)]
    assert not [str(verdict) for verdict in verdicts if verdict.status == DIFFERENT]


RELU = """
func.func @main(%x: tensor<2x5xf32>) -> tensor<2x5xf32> {
  %y = "relax.tanh"(%x) : (tensor<2x5xf32>) -> tensor<2x5xf32> loc("activation")
  %z = "relax.relu"(%y) : (tensor<2x5xf32>) -> tensor<2x5xf32> loc("rectifier")
  return %z : tensor<2x5xf32>
}
"""


def _without_relu(op: ir.OpView, b: Rewriter) -> ir.Value:
    """Replace relu(x) by x, which is wrong."""
    value: ir.Value = op.x
    return value


def _twice(op: ir.OpView, b: Rewriter) -> ir.Value:
    """Replace relu(x) by relu(relu(x)), which is right."""
    return b.emit(OPS["relu"], b.emit(OPS["relu"], op.x))


def _nearly(op: ir.OpView, b: Rewriter) -> ir.Value:
    """Replace relu(x) by relu(x) times a number near one, which is wrong by more than rounding."""
    kind = TensorType.of((), "f32")
    return b.emit(OPS["multiply"], b.emit(OPS["relu"], op.x), b.constant(np.float32(1 + 1e-6), kind))


def _doubled(op: ir.OpView, b: Rewriter) -> ir.Value:
    """Replace relu(x) by 2 relu(x / 2), which is right as positive factors keep the order of numbers."""
    kind = TensorType.of((), "f32")
    half, two = (b.constant(np.float32(number), kind) for number in (0.5, 2.0))
    return b.emit(OPS["multiply"], b.emit(OPS["relu"], b.emit(OPS["multiply"], op.x, half)), two)


@pytest.mark.parametrize(
    ("function", "status"),
    [(_without_relu, DIFFERENT), (_twice, EQUAL), (_nearly, DIFFERENT), (_doubled, OUTSIDE)],
)
def test_a_rule_that_changes_a_value_is_named(function: RuleFunction, status: str) -> None:
    book = RuleBook("test")
    book.add("relax.relu", "default", function)
    watch = RuleComparison()
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(RELU)
        rules = [*book.candidates("relax.relu", ("default",))]
        session = Session(options={RULE_WATCH: watch})
        rewrite_by(
            module.body.operations[0], lambda name: rules if name == "relax.relu" else (),
            lambda op, at: Rewriter(op, session, at=at), max_rounds=1,
        )  # fmt: skip
    (verdict,) = watch.verdicts
    assert (verdict.rule, verdict.status, verdict.nodes) == (function.__name__, status, ("rectifier",))
    assert "relax.relu" in verdict.graphs or status != DIFFERENT
    assert ("the order of numbers (arith.maximumf)" in verdict.why) == (status == OUTSIDE)


def test_a_rule_of_a_target_that_changes_a_value_is_named(wrong_rule: None) -> None:
    """What a target's rule of `legalize` makes of an operator is compared with what the default rule does."""
    with make_context(), ir.Location.unknown():
        steps = Pipeline("builtin.module(legalize{target=llvm})").steps
        verdicts = compare_passes([ir.Module.parse(RELU)], Session(report=lambda *_: None), steps)
    wrong = first_wrong(verdicts)
    assert isinstance(wrong, RuleVerdict) and wrong.nodes == ("activation",) and "exponential" in wrong.rule
    assert [each.status for each in verdicts.passes] == [DIFFERENT]


@pytest.mark.parametrize("mask", [True, False])
def test_the_rule_of_attention_keeps_the_value(mask: bool) -> None:
    """A sum of exponentials is no zero, so that the row of a mask that hides all keys is the only other one."""
    kind, scores = "tensor<1x2x5x8xf32>", "tensor<1x2x5x5xf32>"
    masked = f'%m = "relax.add"(%s, %mask) : ({scores}, {scores}) -> {scores}' if mask else ""
    verdicts = verdicts_of(f"""
    func.func @main(%q: {kind}, %k: tensor<1x2x8x5xf32>, %v: {kind}, %mask: {scores}) -> {kind} {{
      %s = "relax.matmul"(%q, %k) : ({kind}, tensor<1x2x8x5xf32>) -> {scores}
      {masked}
      %w = "relax.softmax"({"%m" if mask else "%s"}) {{axis = 3 : i64}} : ({scores}) -> {scores}
      %y = "relax.matmul"(%w, %v) : ({scores}, {kind}) -> {kind}
      return %y : {kind}
    }}
    """)
    assert [(each.rule, each.status) for each in verdicts if each.rule == "attention"] == [("attention", EQUAL)]


def test_a_pass_of_rules_that_are_not_compared_is_outside(doubled_rule: None) -> None:
    """2 max(x / 2, 0) is max(x, 0), but not modulo a prime: the pass names the rule, and is not called wrong."""
    with make_context(), ir.Location.unknown():
        steps = Pipeline("builtin.module(legalize{target=llvm})").steps
        (verdict,) = compare_passes([ir.Module.parse(RELU)], Session(report=lambda *_: None), steps).passes
    assert verdict.status == OUTSIDE and verdict.why.endswith("it applies rules that are not compared: doubled")
    assert "result 0 differs in" in verdict.why


@pytest.fixture(name="doubled_rule")
def _doubled_rule() -> Iterator[None]:
    @legalize("relax.relu", target="llvm", priority=10)
    def doubled(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
        """Compute 2 max(x / 2, 0)."""

        def body(p: PrimBuilder, x: TensorExpr) -> TensorExpr:
            return p.compute(x.shape, lambda *i: maximum(x[i] * 0.5, 0.0) * 2.0, name="doubled")

        return b.call_prim(body, op.x)

    yield
    LEGALIZE.forget(__name__)


@pytest.fixture(name="wrong_rule")
def _wrong_rule() -> Iterator[None]:
    @legalize("relax.tanh", target="llvm", priority=10)
    def exponential(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
        """Compute the exponential, which tanh is not."""
        return b.call_prim(lambda p, x: p.compute(x.shape, lambda *i: exp(x[i]), name="exponential"), op.x)

    yield
    LEGALIZE.forget(__name__)


def test_a_pass_that_changes_results_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants are folded by what operators mean in numpy; a wrong meaning is found."""
    text = """
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %c = "relax.constant"() {value = dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>} : () -> tensor<4xf32>
      %d = "relax.negative"(%c) : (tensor<4xf32>) -> tensor<4xf32>
      %y = "relax.add"(%x, %d) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      return %y : tensor<4xf32>
    }
    """
    for is_wrong in (False, True):
        if is_wrong:
            monkeypatch.setattr(OPS["negative"], "meaning", staticmethod(np.abs))
        with make_context(), ir.Location.unknown():
            steps = Pipeline("builtin.module(func.func(simplify),func.func(fold-constant))").steps
            wrong = first_wrong(compare_passes([ir.Module.parse(text)], Session(), steps))
        assert (wrong is not None and "fold-constant" in str(wrong)) == is_wrong


def test_transformed_weights_are_integers() -> None:
    """Windows of multiples of 1,296 are integers when they are transformed in floats: sums that cancel are zero."""
    windows = np.random.default_rng(0).integers(-4, 5, (3, 3, 8, 8)).astype(np.float32) * 1296
    result = graph_function._without_rounding(transformed_weight(windows, 4).astype(np.float64))
    assert (result == np.rint(result)).all() and (result == 0).any()


def test_constants_are_the_numbers_that_they_stand_for() -> None:
    """1 / 3 and sqrt(2) are rounded to f32; products of such numbers with their inverses are one."""
    third, root = (float(np.float32(number)) for number in (1 / 3, math.sqrt(2)))
    inverse = float(np.float32(1 / root))
    assert named(third) * 3 == 1 and named(root) * named(inverse) == 1 and named(0.5) * 2 == 1
    assert named(0.1234567) == Fraction(0.1234567)
    numbers = np.array([0.0, -1.5, 3e-41, 1e30, -7.0])
    assert list(VALUES.residues(numbers)) == [VALUES.residue(Fraction(float(x))) for x in numbers]


@pytest.mark.sample(40)
@pytest.mark.parametrize("seed", range(400))
def test_rules_of_random_graphs_keep_values(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks, broadcasts and unit dims are drawn; weights are small integers, whose products are exact."""
    monkeypatch.setattr(random_graphs.Graph, "numbers", _integers)
    monkeypatch.setattr(random_graphs.Graph, "constant", _exact_constant)
    with make_context(), ir.Location.unknown(), np.errstate(all="ignore"):
        graph = random_graphs.new_graph(seed)
        with ir.InsertionPoint(graph.function.entry_block):
            grow(graph, count=4 + seed % 12)
            random_graphs.finish(graph)
        watch = RuleComparison()
        passes = Pipeline(PASSES.removesuffix(")") + ",legalize{target=llvm})")
        passes.run(graph.module, Session(graph.params, options={RULE_WATCH: watch}, report=lambda *_: None))
    assert not [f"{verdict}\n{verdict.graphs}" for verdict in watch.verdicts if verdict.status == DIFFERENT]


def _integers(graph: random_graphs.Graph, shape: tuple[int, ...]) -> np.ndarray:
    return graph.random.integers(-3, 4, shape).astype(np.float32)


_CONSTANT = random_graphs.Graph.constant


def _exact_constant(
    graph: random_graphs.Graph, shape: tuple[int, ...], scale: float = 1.0, offset: float = 0.0, splat: bool = False
) -> random_graphs.GraphNode:
    return _CONSTANT(graph, shape, 2.0 ** round(math.log2(max(scale, 0.01))), round(offset), splat)
