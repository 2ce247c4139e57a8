"""The rules of intrinsics: order, fall-through, records, and rules that misbehave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.lower.intrinsics import CUSTOM_RULES, IntrinsicChoice, LowerIntrinsics
from mirlo.passes.registry import PassError
from mirlo.passes.rules import INTRINSIC, decline, intrinsic
from mirlo.passes.session import Session
from mirlo.testing import temporary_registrations

TEXT = """
func.func @f(%x: f32) -> f32 {
  %0 = "tir.cosh"(%x) : (f32) -> f32
  return %0 : f32
}"""


@pytest.fixture(autouse=True)
def _context() -> Iterator[None]:
    with make_context(), ir.Location.unknown():
        yield


def lower(custom: Callable[..., Any] | None = None, text: str = TEXT) -> tuple[str, list[Any]]:
    module = ir.Module.parse(text)
    session = Session(options={} if custom is None else {CUSTOM_RULES: {"cosh": custom}})
    LowerIntrinsics().run(module.operation, session)
    module.operation.verify()
    return str(module), session.notes


def test_a_rule_of_the_caller_comes_first() -> None:
    text, notes = lower(lambda op, b: b.sqrt(op.nums[0]))
    assert "math.sqrt" in text and "math.fma" not in text
    assert [note.rule.target for note in notes] == ["custom"]


def test_a_declined_rule_falls_through_and_is_recorded() -> None:
    text, notes = lower(lambda op, b: decline("not today", operands=len(op.args)))
    assert "math.fma" in text
    (choice,) = notes
    assert isinstance(choice, IntrinsicChoice)
    assert choice.rule.target == "default" and choice.rule.name == "cosh"
    assert "tir.cosh on f32 for llvm: cosh [default]" in str(choice)
    assert "declined: <lambda> [custom]: not today (operands=1)" in str(choice)


def test_a_rule_may_emit_other_intrinsics() -> None:
    text, notes = lower(lambda op, b: b.call("exp", op.nums[0]) * 0.5)
    assert "tir." not in text
    assert [note.intrinsic for note in notes] == ["cosh", "exp"]


def test_a_rule_may_return_a_plain_value() -> None:
    text, _ = lower(lambda op, b: op.args[0])
    assert "return %arg0" in text


def test_a_rule_that_returns_nothing_is_named() -> None:
    message = r"rule '<lambda> for cosh on custom' at .*test_lower_intrinsics.py:\d+ returned nothing"
    with pytest.raises(PassError, match=message):
        lower(lambda op, b: None)


def test_a_rule_that_returns_another_type_is_named() -> None:
    with pytest.raises(PassError, match="returned i1 for result #0, which is f32"):
        lower(lambda op, b: op.nums[0] < 0.0)


def test_a_rule_that_returns_no_value_is_named() -> None:
    with pytest.raises(PassError, match="returned a str for result #0: expected a value"):
        lower(lambda op, b: "cosh")


def test_a_rule_that_emits_its_own_intrinsic_goes_in_a_circle() -> None:
    with pytest.raises(
        PassError, match="the rules of 'llvm' form a cycle: after 16 iterations there is still tir.cosh"
    ):
        lower(lambda op, b: b.call("cosh", op.nums[0]))


def test_a_decorated_rule_of_a_higher_priority_wins() -> None:
    @intrinsic("cosh", target="llvm", priority=10)
    def even_better(op: Any, b: Any) -> Any:
        return decline("has no way for vectors") if op.is_vector else b.abs(op.nums[0])

    try:
        text, _ = lower()
        assert "math.absf" in text
        vectors, notes = lower(text=TEXT.replace("f32", "vector<4xf32>"))
        assert "math.fma" in vectors
        assert [str(attempt) for attempt in notes[0].attempts] == ["even_better [llvm]: has no way for vectors"]
    finally:
        present = INTRINSIC._rules["cosh", "llvm"]
        present[:] = [rule for rule in present if rule.function is not even_better]


def test_operations_in_every_region_are_lowered() -> None:
    text, _ = lower(
        text="""
func.func @f(%x: f32, %c: i1) -> f32 {
  %0 = scf.if %c -> f32 {
    %1 = "tir.exp"(%x) : (f32) -> f32
    scf.yield %1 : f32
  } else {
    %2 = "tir.exp"(%x) : (f32) -> f32
    scf.yield %2 : f32
  }
  %3 = "tir.exp"(%0) : (f32) -> f32
  return %3 : f32
}"""
    )
    assert "tir." not in text


def test_compile_takes_rules_for_one_compilation() -> None:
    model = """
func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "relax.cosh"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}"""
    x = np.linspace(-2, 2, 8, dtype=np.float32)
    usual = mirlo.compile(ir.Module.parse(model))
    own = mirlo.compile(ir.Module.parse(model), intrinsics={"cosh": lambda op, b: op.nums[0] * 2.0})
    np.testing.assert_allclose(usual(x), np.cosh(x), rtol=1e-6)
    np.testing.assert_array_equal(own(x), x * 2)


def test_what_rules_of_users_leave_is_verified() -> None:
    session = Session()
    session.options[CUSTOM_RULES] = {"exp": lambda op, b: b.math("exp2", *op.args)}
    assert not LowerIntrinsics().is_trusted(session)


def _foreign(op: Any, b: Any) -> Any:
    return decline("is here for the test below only")


def test_what_registered_rules_of_others_leave_is_verified() -> None:
    others = {rule for rule in INTRINSIC if rule.is_foreign}  # of test modules that register for all of their tests
    with temporary_registrations(__name__):
        intrinsic("exp", target="gpu")(_foreign)
        assert [rule.function for rule in INTRINSIC if rule.is_foreign and rule not in others] == [_foreign]
        assert INTRINSIC.foreign() is not None and not LowerIntrinsics().is_trusted(Session())
    assert {rule for rule in INTRINSIC if rule.is_foreign} == others
    assert LowerIntrinsics().is_trusted(Session()) == (not others)
