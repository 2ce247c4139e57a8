"""Rules for intrinsics that do not exist are errors, wherever they come from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.extend.rules import INTRINSIC, decline, intrinsic
from mirlo.passes.instrumentation import PassFailed
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session

TEXT = """func.func @f(%x: f32) -> f32 {
  %0 = "tir.cosh"(%x) : (f32) -> f32
  return %0 : f32
}"""


def lower(given: dict[str, Any], target: str = "llvm") -> str:
    """Return the module after the pass, with these rules for it."""
    session = Session(options={"intrinsics": given})
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(TEXT)
        Pipeline(f"lower-intrinsics{{target={target}}}").run(module, session)
        return str(module)


@pytest.fixture
def rules() -> Iterator[None]:
    """Undo the registrations of a test."""
    kept = {key: list(value) for key, value in INTRINSIC._rules.items()}
    yield
    INTRINSIC._rules.clear()
    INTRINSIC._rules.update(kept)


def test_a_rule_given_for_what_does_not_exist() -> None:
    message = r"a lowering is given for 'tir.csh' \(at .*names.py:\d+\), which is not an intrinsic; did you mean"
    with pytest.raises(PassFailed, match=message):
        lower({"csh": lambda op, b: op.nums[0]})


@pytest.mark.parametrize("name", ["cosh", "tir.cosh"])
def test_names_with_and_without_the_dialect(name: str) -> None:
    assert "return %arg0" in lower({name: lambda op, b: op.nums[0]})


def test_several_rules_are_tried_in_order() -> None:
    assert "return %arg0" in lower({"cosh": [lambda op, b: decline("no"), lambda op, b: op.nums[0]]})


def test_a_rule_registered_for_what_does_not_exist(rules: None) -> None:
    @intrinsic("tir.csh", target="llvm")
    def lost(op: Any, b: Any) -> Any:
        return op.nums[0]

    message = r"rule 'lost for csh on llvm' at .*:\d+ is for 'tir.csh', which is not an intrinsic; did you mean"
    with pytest.raises(PassFailed, match=message):
        lower({})
