"""Application of rules: results are checked in the same way for operators, intrinsics and graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.calls import CallPacked
from mirlo.extend.codegen import is_op, rewriter, several, wildcard
from mirlo.extend.codegen import rewrite as rewrite_matches
from mirlo.passes.apply_rules import AppliedRule, NoRule, RuleCall, apply_rules
from mirlo.passes.graph.rewrite import kind_of, rewrite
from mirlo.passes.legalize.conversion import Conversion
from mirlo.passes.lower.intrinsics import Lowering
from mirlo.passes.registry import PassError
from mirlo.passes.rules import RuleBook, RuleError, decline
from mirlo.passes.session import Session

TEXT = """
func.func @main(%x: tensor<4xf32>, %y: tensor<3xf32>) -> tensor<4xf32> {
  %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
SCALAR = """
func.func @main(%x: f32, %y: i1) -> f32 {
  %0 = "tir.cosh"(%x) : (f32) -> f32
  return %0 : f32
}
"""


def on_graph(module: ir.Module, rule: Callable[..., object]) -> None:
    book = RuleBook("test")
    book.add("relax.relu", "default", rule)
    rewrite(module.body.operations[0], book, Session())


def on_match(module: ir.Module, rule: Callable[..., object]) -> None:
    def wrong(match: Any, b: Any) -> object:
        return rule(match.root.op.opview, b)

    rewrite_matches(rewriter(is_op("relax.relu")(wildcard().named("x")))(wrong), module.body.operations[0])


def on_operator(module: ir.Module, rule: Callable[..., object]) -> None:
    Conversion(module.operation, ("llvm",), {"relax.relu": rule}, lambda name: name == "relax.relu").run()


def on_intrinsic(module: ir.Module, rule: Callable[..., object]) -> None:
    Lowering(("llvm",), {"cosh": rule}).run(module.operation)


DRIVERS = {
    "graph": (on_graph, TEXT),
    "match": (on_match, TEXT),
    "operator": (on_operator, TEXT),
    "intrinsic": (on_intrinsic, SCALAR),
}
OTHER = {"graph": "tensor<3xf32>", "match": "tensor<3xf32>", "operator": "tensor<3xf32>", "intrinsic": "i1"}


@pytest.fixture(params=DRIVERS)
def driver(request: Any) -> Iterator[tuple[str, ir.Module, Callable[[Callable[..., object]], None]]]:
    run, text = DRIVERS[request.param]
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        yield request.param, module, lambda rule: run(module, rule)


def _argument(module: ir.Module, number: int) -> ir.Value:
    return module.body.operations[0].regions[0].blocks[0].arguments[number]


def test_what_a_rule_returns_takes_the_place(driver: Any) -> None:
    _, module, run = driver
    run(lambda op, b: _argument(module, 0))
    assert "relax.relu" not in str(module) and "tir.cosh" not in str(module) and "return %arg0" in str(module)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda module: _argument(module, 1), "returned {other} for result #0, which is"),
        (lambda module: "text", "returned a str for result #0: expected a value"),
        (lambda module: [_argument(module, 0)] * 2, "returned 2 values for 1 results"),
        (lambda module: [], "returned 0 values for 1 results"),
        (lambda module: None, "returned nothing"),
    ],
    ids=["type", "text", "two", "none", "nothing"],
)
def test_what_does_not_fit_is_an_error_that_names_the_rule(driver: Any, returned: Any, message: str) -> None:
    name, module, run = driver
    expected = rf"rule 'wrong for .*' at .*test_apply_rules.py:\d+ {message.format(other=OTHER[name])}"

    def wrong(op: Any, b: Any) -> Any:
        return returned(module)

    with pytest.raises((RuleError, PassError), match=expected):
        run(wrong)


def test_the_result_itself_changes_nothing(driver: Any) -> None:
    _, module, run = driver

    def same(op: Any, b: Any) -> Any:
        return module.body.operations[0].regions[0].blocks[0].operations[0].results[0]

    with pytest.raises((RuleError, PassError), match="returned result #0 itself: nothing would change"):
        run(same)


def test_declines_are_recorded_in_order() -> None:
    book = RuleBook("test")
    book.add("relax.relu", "llvm", lambda op: decline("never", at=op), priority=2, name="first")
    book.add("relax.relu", "llvm", lambda op: op, priority=1, name="second")
    rules = book.candidates("relax.relu", ("llvm",))
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(TEXT)
        op = module.body.operations[0].regions[0].blocks[0].operations[0].operation
        applied = apply_rules(op, rules, lambda rule: RuleCall((_argument(module, 0),)))
        assert isinstance(applied, AppliedRule) and applied.rule.name == "second"
        assert [attempt.rule.name for attempt in applied.attempts] == ["first"]
        declined = apply_rules(op, rules[:1], lambda rule: RuleCall((1,)))
        assert isinstance(declined, NoRule) and str(declined.attempts[0]) == "first [llvm]: never (at=1)"
        with pytest.raises(RuleError, match="declined after it had made @f: a rule decides first, then builds"):
            apply_rules(op, rules, lambda rule: RuleCall((1,), ["@f"]))


def test_rules_with_patterns_are_rules_of_the_operators_at_the_root() -> None:
    book = RuleBook("test", takes_patterns=True)
    x = wildcard().named("x")

    @book.decorator(is_op("relax.exp")(is_op("relax.log")(x)) | is_op("relax.relu")(x))
    def inner(match: Any, b: Any) -> object:
        return match["x"]

    assert book.subjects() == {"relax.exp", "relax.relu"} and {rule.name for rule in book} == {"inner"}
    assert all(":" in rule.place and rule.is_foreign for rule in book)
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(TEXT)
        assert rewrite(module.body.operations[0], book, Session()) == 1
        assert "relax.relu" not in str(module)


def test_a_rule_has_one_pattern_with_a_known_root() -> None:
    book = RuleBook("test", takes_patterns=True)
    with pytest.raises(TypeError, match="any operator may be the pattern's root"):
        book.decorator(wildcard())(lambda match, b: None)
    with pytest.raises(TypeError, match="join several by |"):
        book.decorator(is_op("relax.exp"), is_op("relax.log"))
    x = wildcard().named("x")
    book.decorator(several(is_op("relax.relu")(x), is_op("relax.exp")(x)))(lambda match, b: match["x"])
    result = '%1 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>'
    total = '%2 = "relax.add"(%0, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>'
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(TEXT.replace("return %0", f"{result}\n  {total}\n  return %2"))
        with pytest.raises(RuleError, match="patterns of several outputs are rewritten by the pass 'rewrite'"):
            rewrite(module.body.operations[0], book, Session())


SEGMENTS = f"operandSegmentSizes = array<i32: 1{', 0' * 15}>, resultSegmentSizes = array<i32: {{}}, 0, 0, 0>"
CALLS = f"""
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {{
  %0 = "relax.call_packed"(%x) {{function = "one", {SEGMENTS.format(1)}}} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "relax.call_packed"(%x) {{function = "two", {SEGMENTS.format(1)}}} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.exp"(%1) : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %2 : tensor<4xf32>, tensor<4xf32>
}}
"""
TWO_RESULTS = f"""
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {{
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1:2 = "relax.call_packed"(%x) {{function = "one", {SEGMENTS.format(2)}}} :
    (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  return %0, %1#0 : tensor<4xf32>, tensor<4xf32>
}}
"""
CALL = is_op("relax.call_packed")


def _functions_called(rule: Any, text: str = CALLS) -> list[str]:
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        function = module.body.operations[0]
        if isinstance(rule, RuleBook):
            rewrite(function, rule, Session())
        else:
            assert rewrite_matches(rule, function).converged
        module.operation.verify()
        operations = [op.operation for op in function.regions[0].blocks[0].operations]
        return [op.attributes["function"].value for op in operations if op.name == "relax.call_packed"]


def test_operators_with_effects_are_erased_where_rules_replace_them() -> None:
    book = RuleBook("test")
    book.add("relax.call_packed", "default", lambda op, b: b.emit(OPS["relu"], op.operation.operands[0]))
    x = wildcard().named("x")
    pattern = rewriter(CALL(x))(lambda match, b: b.emit(OPS["relu"], match["x"]))
    assert _functions_called(book) == _functions_called(pattern) == []


def test_operators_with_effects_stay_if_they_only_lose_their_users() -> None:
    book = RuleBook("test")
    book.add("relax.exp", "default", lambda op, b: op.operation.operands[0].owner.operands[0])
    x = wildcard().named("x")
    pattern = rewriter(is_op("relax.exp")(CALL(x)))(lambda match, b: match["x"])
    assert _functions_called(book) == _functions_called(pattern) == ["one", "two"]


def test_operators_with_effects_are_rewritten_without_users() -> None:
    book = RuleBook("test")
    x = wildcard().named("x")

    def other(value: Any, function: str, b: Any) -> object:
        if function != "one":
            return decline("it has this name")
        with b.at, b.op.location:
            return b.emit_all(CallPacked, [value], result_types=[kind_of(b.op.results[0])], function="new")

    book.add("relax.call_packed", "default", lambda op, b: other(op.operation.operands[0], op.function, b))
    pattern = rewriter(CALL(x))(lambda match, b: other(match["x"], match.root.op.opview.function, b))
    text = CALLS.replace("return %0, %2", "return %x, %2")
    assert _functions_called(book, text) == _functions_called(pattern, text) == ["new", "two"]


def test_outputs_with_effects_are_erased_where_a_rule_replaces_all_of_them() -> None:
    x = wildcard().named("x")
    both = several(CALL(x).named("left"), is_op("relax.exp")(CALL(x).named("right")).named("root"))
    pattern = rewriter(both)(lambda match, b: {"left": match["x"], "root": match["x"]})
    assert _functions_called(pattern) == ["two"]
    pattern = rewriter(both)(lambda match, b: {"left": match["x"], "right": match["x"], "root": match["x"]})
    assert _functions_called(pattern) == []


def test_an_output_with_effects_stays_if_a_rule_replaces_some_of_its_results() -> None:
    x = wildcard().named("x")
    both = several(is_op("relax.exp")(x).named("root"), CALL(x).named("left"))
    pattern = rewriter(both)(lambda match, b: {"left": match["x"], "root": match["x"]})
    assert _functions_called(pattern, TWO_RESULTS) == ["one"]
