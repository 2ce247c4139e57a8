"""Registration of rules, and what legalizing a large module costs."""

from __future__ import annotations

import collections
from typing import Any

import pytest

from mirlo.benchmarks.compile.legalize import LAYER, WIDTHS, make_module
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.legalize.conversion import Conversion
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.rules import LEGALIZE, RuleBook, RuleError, decline, preferring, run_rule, try_rules
from mirlo.passes.session import Session


def _rule(op: Any, b: Any) -> Any:
    """Return what it does.

    And more.
    """
    return decline("never")


def _other(op: Any, b: Any) -> Any:
    return op


def test_order_is_chain_then_priority_after_the_callers_own() -> None:
    book = RuleBook("test")
    book.add("op", "default", _rule, name="d")
    book.add("op", "mydsp", _rule, name="late")
    book.add("op", "mydsp", _rule, priority=1, name="early")
    book.table({"op": [_other], "another": _rule}, target="llvm")
    found = book.candidates("op", ("mydsp", "llvm", "default"), {"op": [_rule, _other]})
    assert [f"{r.name}@{r.target}" for r in found] == [
        "_rule@custom", "_other@custom", "early@mydsp", "late@mydsp", "_other@llvm", "d@default",
    ]  # fmt: skip
    assert [r.name for r in preferring(found, "d")] == ["_rule", "_other", "d", "early", "late", "_other"]
    assert book.candidates("op", ("gpu",)) == [] and book.subjects() == {"op", "another"}


def test_a_rule_knows_its_place_and_what_it_does() -> None:
    rule = RuleBook("test").add("op", "llvm", _rule)
    assert rule.place.endswith(f"test_rule_book.py:{_rule.__code__.co_firstlineno}")
    assert (rule.summary, str(rule)) == ("Return what it does.", "_rule for op on llvm")


def test_two_rules_of_one_name() -> None:
    book = RuleBook("test")
    book.add("op", "llvm", _rule, name="same")
    message = r"test rule 'same for op on llvm' is registered twice: at .*test_rule_book.py:\d+ and at "
    with pytest.raises(ValueError, match=message):
        book.add("op", "llvm", _other, name="same")


def test_a_decorator_without_names() -> None:
    with pytest.raises(TypeError, match=r'a legalize rule needs the names that it is for: @legalize\("name"'):
        LEGALIZE.decorator(_rule)  # type: ignore[arg-type]


def test_what_goes_wrong_in_a_rule_names_it() -> None:
    def breaks() -> Any:
        return 1 / 0

    rule = RuleBook("test").add("op", "llvm", breaks)
    message = r"rule 'breaks for op on llvm' at .*:\d+ raised ZeroDivisionError: division by zero \(at .*:\d+\)"
    with pytest.raises(RuleError, match=message):
        run_rule(rule)
    with pytest.raises(RuleError, match=r"rule 'nothing for op on llvm' at .* returned nothing: return a result or"):
        run_rule(RuleBook("test").add("op", "llvm", lambda: None, name="nothing"))


def test_declines_are_kept_in_order() -> None:
    book = RuleBook("test")
    book.add("op", "llvm", lambda: decline("too wide", width=9), priority=2, name="first")
    book.add("op", "llvm", lambda: decline("no"), priority=1, name="second")
    book.add("op", "llvm", lambda: 7, name="third")
    outcome, rule, attempts = try_rules(book.candidates("op", ("llvm",)))
    assert outcome == 7 and rule is not None and rule.name == "third"
    assert [str(a) for a in attempts] == ["first [llvm]: too wide (width=9)", "second [llvm]: no"]


@pytest.mark.sample(0)
def test_two_thousand_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node is looked at once in one round, and equal ones share a prim function."""
    counts: collections.Counter[str] = collections.Counter()
    for name in ("run", "_convert", "pending"):
        original = getattr(Conversion, name)

        def counted(self: Any, *arguments: Any, _name: str = name, _original: Any = original) -> Any:
            counts[_name] += 1
            return _original(self, *arguments)

        monkeypatch.setattr(Conversion, name, counted)
    nodes = 2000
    session = Session()
    with make_context(), ir.Location.unknown():
        module = make_module(nodes)
        Pipeline("legalize").run(module, session)
        functions = sum(op.operation.name == "func.func" for op in module.body.operations) - 1
    assert len(session.notes) == nodes
    assert functions == len(LAYER) * WIDTHS
    assert counts == {"_convert": nodes, "run": 2, "pending": 3}


def test_rules_that_are_not_mirlos_own_are_known() -> None:
    import importlib

    book = RuleBook("test")
    own = importlib.import_module("mirlo.passes.schedule.parts")
    book.add("x", "default", own.arrange_scalars)
    assert book.foreign() is None
    book.add("y", "default", lambda: None, name="theirs")
    found = book.foreign()
    assert found is not None and found.name == "theirs"
