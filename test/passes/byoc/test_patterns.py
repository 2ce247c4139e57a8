"""The pattern language from Python: searches that end, records, rewriting, layouts by a function."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.extend.codegen import is_const, is_op, is_var, repeat, rewrite, rewriter, several, wildcard
from mirlo.extend.rules import decline
from mirlo.passes.byoc.graph import BlockGraph
from mirlo.passes.byoc.hoist_layouts import LayoutRecord
from mirlo.passes.byoc.partition import Partitioner
from mirlo.passes.byoc.pattern import Pattern, check_pattern
from mirlo.passes.byoc.records import Placement
from mirlo.passes.byoc.search import PatternError, Search, State
from mirlo.passes.byoc.tables import entry_of
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.rules import RuleError, combine, recognize, simplify
from mirlo.passes.session import Session

KIND = "tensor<4xf32>"


def function(*lines: str, returned: str) -> str:
    body = "\n  ".join([*lines, f"return {returned} : {KIND}"])
    return f"func.func @main(%x: {KIND}) -> {KIND} {{\n  {body}\n}}"


def unary(result: str, operator: str, operand: str) -> str:
    return f'{result} = "relax.{operator}"({operand}) : ({KIND}) -> {KIND} loc("node of {result[1:]}")'


def binary(result: str, operator: str, left: str, right: str) -> str:
    return f'{result} = "relax.{operator}"({left}, {right}) : ({KIND}, {KIND}) -> {KIND}'


def placed(text: str, **rows: list[tuple]) -> Placement:
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        tables = {target: [entry_of(target, row) for row in given] for target, given in rows.items()}
        return Partitioner(module.operation, Session(), tables).run()


def sums(count: int) -> str:
    """Each adds the two values before it: as many ways through it as there are Fibonacci numbers."""
    lines = [binary("%v0", "add", "%x", "%x"), binary("%v1", "add", "%v0", "%x")]
    lines += [binary(f"%v{i}", "add", f"%v{i - 1}", f"%v{i - 2}") for i in range(2, count)]
    return function(*lines, returned=f"%v{count - 1}")


def test_long_chains_of_alternatives_do_not_explode() -> None:
    def step(before):
        either = is_op("relax.add", "relax.multiply")(before, wildcard()) | is_op("relax.relu")(before)
        return either | is_op("relax.subtract")(wildcard(), before)

    start = time.process_time()
    placement = placed(sums(40), t=[("chain", repeat(is_op("relax.conv"), step, most=24))])
    assert time.process_time() - start < 5
    assert not placement.taken
    last = placement.attempts[-1]
    assert (last.depth, last.reason) == (24, "expected relax.conv, found relax.add")


@pytest.mark.sample(0)
def test_patterns_that_fit_in_too_many_ways_are_given_up() -> None:
    chain = repeat(wildcard(), lambda v: is_op("relax.add")(v, wildcard()), most=16)
    placement = placed(sums(18), t=[("sum", is_op("relax.add")(chain, is_const()))])
    assert "in too many ways" in placement.attempts[-1].reason


def test_records() -> None:
    text = function(
        unary("%0", "exp", "%x"), unary("%1", "relu", "%0"), unary("%2", "tanh", "%1"), unary("%3", "log", "%2"),
        returned="%3",
    )  # fmt: skip
    relu = is_op("relax.relu")
    placement = placed(
        text,
        first=[("long", relu(is_op("relax.exp")(wildcard()))), ("tanh", is_op("relax.tanh")(is_const()))],
        second=[("relu", relu(wildcard())), ("deep", is_op("relax.log")(is_op("relax.tanh")(is_op("relax.exp"))))],
    )
    assert [node.operator for node in placement.nodes] == ["relax.exp", "relax.relu", "relax.tanh", "relax.log"]
    assert [node.names for node in placement.nodes] == [(f"node of {i}",) for i in range(4)]
    assert placement.nodes[1].reads == (0,) and placement.nodes[1].bytes == 32
    assert [(t.target, t.pattern, t.nodes) for t in placement.taken] == [("first", "long", (0, 1))]
    assert placement.why_not(0, "first") == ""
    assert placement.why_not(1, "second") == "taken by first.long"
    assert placement.why_not(2, "first") == "first.tanh matched 1 deep: expected a constant, found relax.relu"
    assert placement.why_not(3, "first") == "no pattern of first has the operator relax.log"
    assert placement.why_not(3, "second") == "second.deep matched 2 deep: expected relax.exp, found relax.relu"
    lost = next(a for a in placement.attempts if a.pattern == "relu")
    assert (lost.accepted, lost.lost_to, lost.depth) == (False, "first.long", 0)
    assert [(r.target, r.nodes, r.flops) for r in placement.regions] == [("first", (0, 1), 8)]
    assert json.loads(json.dumps(placement.to_json()))["targets"] == ["first", "second"]


def test_matches_are_refused_from_outside() -> None:
    text = function(unary("%0", "exp", "%x"), unary("%1", "relu", "%0"), unary("%2", "exp", "%1"), returned="%2")

    def decide(entry, match, numbers):
        return True if 2 in numbers else decline("cheaper elsewhere", nodes=numbers)

    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        tables = {"t": [entry_of("t", ("exp", is_op("relax.exp"))), entry_of("t", ("relu", is_op("relax.relu")))]}
        placement = Partitioner(module.operation, Session(), tables, decide=decide).run()
    assert [taken.nodes for taken in placement.taken] == [(2,)]
    assert placement.why_not(0, "t") == "t.exp matched 1 deep: cheaper elsewhere (nodes=(0,))"
    region = placement.regions[0]
    assert (region.flops, region.bytes_in, region.bytes_out) == (4, 16, 16)


def test_predicates_say_who_they_are() -> None:
    def wide_enough(op):
        return op.x.type.shape[0] > 4 or decline("too narrow", size=op.x.type.shape[0])

    placement = placed(
        function(unary("%0", "exp", "%x"), returned="%0"), t=[("exp", is_op("relax.exp").where(wide_enough))]
    )
    attempt = placement.attempts[0]
    assert (attempt.predicate, attempt.reason) == ("wide_enough", "too narrow (size=4)")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: is_op("conv"), "is_op takes names of operators such as"),
        (lambda: is_op("relax.conv")(1), "an operand must be a pattern, got 1"),
        (lambda: is_op("relax.conv")(wildcard(), weight=wildcard()), "in order or by name, not both"),
        (lambda: several(wildcard()), "at least two patterns"),
        (lambda: several(wildcard(), 3), "got 3"),
        (lambda: repeat(wildcard(), lambda x: x, 3, 2), "expected 0 <= least <= most"),
        (lambda: several((a := is_op("relax.exp")) ^ (b := is_op("relax.log")), b ^ a), "form a cycle"),
        (lambda: several(is_op("relax.exp")(x := wildcard().named("x")), is_op("relax.log")(x)).dup(), "stands for"),
    ],
)
def test_mistakes(make, message: str) -> None:
    with pytest.raises(PatternError) as error:
        make()
    assert message in str(error.value)


def test_an_object_in_two_places_is_an_error_but_not_in_alternatives() -> None:
    x, add, relu = wildcard(), is_op("relax.add"), is_op("relax.relu")
    with pytest.raises(PatternError, match="stands in 2 places"):
        check_pattern(add(relu(x), x))
    check_pattern(relu(x) | add(x, is_const()))
    check_pattern(add(relu(x.named("x")), x.named("x")))
    check_pattern(add(relu(x), x.dup()))


def test_rewrite_gives_account() -> None:
    @rewriter(is_op("relax.exp")(is_op("relax.log")(wildcard().named("x"))))
    def inverse(match, b):
        return match["x"].mlir

    @rewriter(is_op("relax.relu")(wildcard().named("x")))
    def refuse(match, b):
        return decline("not here")

    @rewriter(is_op("relax.tanh"))
    def mistake(match, b):
        return "tanh"

    text = function(
        unary("%0", "log", "%x"), unary("%1", "exp", "%0"), unary("%2", "relu", "%1"), unary("%3", "tanh", "%2"),
        returned="%3",
    )  # fmt: skip
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        main = module.body.operations[0]
        done = rewrite(inverse | refuse, main)
        assert (done.count, done.converged) == (1, True)
        assert [(name, str(why)) for name, why in done.declined] == [("refuse", "not here")]
        assert "relax.log" not in str(module) and module.operation.verify()
        with pytest.raises(RuleError, match=r"rule 'mistake for relax.tanh.* at .*test_patterns.py:\d+ returned a str"):
            rewrite(mistake, main)


IMAGE, KERNEL = "tensor<1x2x4x4xf32>", "tensor<2x2x1x1xf32>"
CONV = f"""
func.func @main(%x: {IMAGE}) -> {IMAGE} {{
  %w = "relax.constant"() {{value = dense<1.0> : {KERNEL}}} : () -> {KERNEL}
  %0 = "relax.conv"(%x, %w) : ({IMAGE}, {KERNEL}) -> {IMAGE}
  %1 = "relax.conv"(%0, %w) {{dilations = array<i64: 2, 2>}} : ({IMAGE}, {KERNEL}) -> {IMAGE}
  return %1 : {IMAGE}
}}
"""


def test_layouts_by_a_function_of_the_operation() -> None:
    def layouts(op):
        return ("N*C", "O*I") if not op.dilations else decline("dilated ones stay")

    session = Session(options={"layouts": layouts})
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(CONV)
        Pipeline("convert-layout,fold-constant").run(module, session)
        first, second = (op for op in module.body.operations[0].entry_block if op.operation.name == "relax.conv")
        assert (first.data_layout, first.kernel_layout) == ("N*C", "O*I")
        assert tuple(first.weight.type.shape) == (2, 1, 1, 2)
        assert (second.data_layout, second.kernel_layout) == ("NC*", "OI*")


def test_layout_record_counts() -> None:
    session = Session()
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(CONV)
        tables = {"t": [entry_of("t", ("conv", is_op("relax.conv")))]}
        Partitioner(module.operation, session, tables).run()
        steps = "outline-external,run-on-external{pipeline=convert-layout},hoist-layouts"
        Pipeline(steps).run(module, session)
    record = next(note for note in session.notes if isinstance(note, LayoutRecord))
    assert (record.at_start, record.cancelled, record.left, record.at_boundary) == (4, 2, 2, 2)


def test_regions_of_symbolic_shapes_take_no_hidden_arguments() -> None:
    kind = 'tensor<?x4xf32, #relax.dims<["batch", 4]>>'
    flat = 'tensor<?xf32, #relax.dims<["4*batch"]>>'
    text = (
        f'func.func @main(%x: {kind}) -> {flat} {{\n  %0 = "relax.exp"(%x) : ({kind}) -> {kind}\n'
        f'  %1 = "relax.reshape"(%0) {{shape = ["4*batch"]}} : ({kind}) -> {flat}\n  return %1 : {flat}\n}}'
    )
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        tables = {"t": [entry_of("t", ("flat", is_op("relax.reshape")(is_op("relax.exp"))))]}
        placement = Partitioner(module.operation, Session(), tables).run()
        Pipeline("outline-external,verify-calls").run(module)
        call = next(op for op in module.body.operations[0].entry_block if op.operation.name == "relax.call_external")
        assert len(call.operation.operands) == 1
    assert placement.regions[0].flops is None


@pytest.mark.parametrize("register", [recognize, simplify, combine])
def test_a_rule_for_a_pattern_is_checked_when_it_is_registered(register) -> None:
    with pytest.raises(PatternError, match="names 'relax.tanhh', which is not an operator; did you mean 'relax.tanh'?"):
        register(is_op("relax.multiply")(wildcard(), is_op("relax.tanhh")(wildcard())))(lambda match, b: match["x"])
    with pytest.raises(PatternError, match="asks for the attribute 'minimum' of 'relax.clip', which has none such"):
        register(is_op("relax.clip")(wildcard()).has_attr(minimum=0))(lambda match, b: match["x"])


UNARY, BINARY = ("relu", "exp", "tanh"), ("add", "multiply", "subtract")


def _drawn_pattern(random: np.random.Generator, depth: int) -> Pattern:
    """Return a pattern of any form, with parts of two labels."""
    form = random.choice(
        ["wildcard", "const", "var"] if depth == 0 else ["op", "op", "op", "or", "and", "not", "wildcard"]
    )
    inner = [_drawn_pattern(random, depth - 1) for _ in range(2)] if depth else []
    if form == "op":
        is_binary = bool(random.integers(2))
        names = random.choice(BINARY if is_binary else UNARY, random.integers(1, 3), replace=False)
        pattern: Pattern = is_op(*(f"relax.{name}" for name in names))
        operands: list[object] = inner if is_binary else inner[:1]
        if is_binary and random.integers(4) == 0:
            operands = [inner[0], ...]
        pattern = pattern(*operands) if random.integers(4) else pattern  # type: ignore[operator]
        if random.integers(4) == 0:
            pattern = pattern.ordered() if random.integers(2) else pattern.unordered()  # type: ignore[attr-defined]
    elif form in ("or", "and"):
        pattern = inner[0] | inner[1] if form == "or" else inner[0] & inner[1]
    else:
        leaves = {"wildcard": wildcard, "const": is_const, "var": is_var}
        pattern = ~inner[0] if form == "not" else leaves[form]()
    return pattern.named(str(random.choice(["a", "b"]))) if random.integers(5) == 0 else pattern


def _drawn_function(random: np.random.Generator) -> str:
    lines, known = [f'%c = "relax.constant"() {{value = dense<2.0> : {KIND}}} : () -> {KIND}'], ["%x", "%c"]
    for i in range(12):
        if random.integers(2):
            lines.append(unary(f"%{i}", random.choice(UNARY), random.choice(known[-4:])))
        else:
            lines.append(binary(f"%{i}", random.choice(BINARY), *random.choice(known[-4:], 2)))
        known.append(f"%{i}")
    return function(*lines, returned=known[-1])


@pytest.mark.parametrize("seed", range(20))
def test_what_names_of_operators_exclude_has_no_match(seed: int) -> None:
    random = np.random.default_rng(seed)
    excluded = matched = 0
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(_drawn_function(random))
        block = module.body.operations[0].regions[0].blocks[0]
        graph = BlockGraph(block, Session())
        for pattern in [_drawn_pattern(random, 1 + i % 3) for i in range(60)]:
            for value in graph.values.values():
                has_match = next(pattern.solve(value, State(), Search(graph, muted=True)), None) is not None
                excludes = pattern.excludes(value.mlir)
                assert not (has_match and excludes), (str(pattern), str(value.mlir))
                excluded, matched = excluded + excludes, matched + has_match
    assert excluded > 200 and matched > 50
