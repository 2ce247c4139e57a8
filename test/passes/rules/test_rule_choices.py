"""Choices of schedule rules: what arguments declare is what may be chosen, is checked and arrives."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from commands import ROOT

import mirlo.tools.explain.rules  # noqa: F401  (registers rules)
from mirlo.passes.rule_choices import Choice, ChoiceError, arguments_of, choice_values, choices_of_type
from mirlo.passes.rules import ANY, SCHEDULE, RuleBook, RuleError, run_rule, schedule, try_rules
from mirlo.passes.schedule.schedule import declared_points
from mirlo.passes.targets import find_target, target_names

Parts = Annotated[int | None, Choice((1, 2), "parts")]
Rows = Annotated[int, Choice(range(1, 9), "rows of a tile", tried=(2, 4, 8))]


@dataclass(frozen=True)
class TileChoices:
    rows: Rows = 4
    lanes: Annotated[tuple[int, ...], Choice((4, 8, 16), "elements of a vector", is_per_loop=True)] = ()
    is_packed: Annotated[bool | None, Choice(range(2), "whether panels are packed")] = None
    note: str = ""


NONE = TileChoices()


def single(
    kernel: Any, context: Any, rows: Rows = 4, parts: Annotated[int | None, Choice((1, 2), "parts")] = None
) -> Any:
    """Return what arrives."""
    return rows, parts


def grouped(kernel: Any, context: Any, choices: TileChoices = NONE, *, parts: Rows = 1) -> Any:
    """Return what arrives."""
    return choices, parts


def every(kernel: Any, context: Any, **chosen: Any) -> Any:
    """Return what arrives."""
    return chosen


def _rule(function: Any) -> Any:
    return RuleBook("test", positional=2).add("any", "llvm", function)


def test_arguments_declare_choices() -> None:
    rows, parts = _rule(single).choices
    assert (rows.name, rows.default, rows.summary, rows.tried) == ("rows", 4, "rows of a tile", (2, 4, 8))
    assert (parts.name, parts.default, parts.range_text) == ("parts", None, "one of 1, 2")
    assert [choice.name for choice in _rule(grouped).choices] == ["parts", "rows", "lanes", "is_packed"]
    assert [choice.is_flag for choice in choices_of_type(TileChoices)] == [False, False, True]
    assert _rule(every).choices == () == RuleBook("legalize").add("op", "llvm", single).choices


def test_a_rule_gets_its_own_choices() -> None:
    chosen = {"rows": 8, "parts": 2, "lanes": (4, 8), "is_packed": 1, "other": 7}
    assert run_rule(_rule(single), 0, 0, chosen=chosen) == (8, 2)
    assert run_rule(_rule(grouped), 0, 0, chosen=chosen) == (TileChoices(8, (4, 8), True), 2)
    assert run_rule(_rule(every), 0, 0, chosen=chosen) == chosen
    assert try_rules([_rule(single)], 0, 0)[0] == (4, None) and run_rule(_rule(grouped), 0, 0) == (NONE, 1)
    assert run_rule(_rule(grouped), 0, 0, chosen={"lanes": 8}) == (TileChoices(lanes=(8,)), 1)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"rows": 9}, "rows: expected an integer from 1 to 8, found 9"),
        ({"rows": True}, "rows: expected an integer from 1 to 8, found True"),
        ({"rows": (1, 2)}, r"rows: expected an integer from 1 to 8, found \[1, 2\]"),
        ({"lanes": 5}, "lanes: expected one of 4, 8, 16, or a list of one for each loop, found 5"),
        ({"lanes": (4, 5)}, r"lanes: .*, found \[4, 5\]"),
        ({"lanes": ()}, r"lanes: .*, found \[\]"),
        ({"is_packed": 2}, "is_packed: expected 0 or 1, found 2"),
    ],
)
def test_values_are_checked(chosen: Any, message: str) -> None:
    with pytest.raises(ChoiceError, match=message):
        run_rule(_rule(grouped), 0, 0, chosen=chosen)


def test_values_that_were_measured_for_another_rule_are_left_out() -> None:
    """Rules may declare one name with different values: `parts` is 1 or 2 here, and up to 8 there."""
    chosen = {"rows": 8, "parts": 5}
    assert try_rules([_rule(single), _rule(grouped)], 0, 0, chosen=chosen)[0] == (8, None)
    assert try_rules([_rule(grouped)], 0, 0, chosen=chosen)[0] == (TileChoices(8), 5)
    assert try_rules([_rule(every)], 0, 0, chosen=chosen)[0] == chosen
    with pytest.raises(ChoiceError, match="parts: expected one of 1, 2, found 5"):
        try_rules([_rule(single), _rule(every)], 0, 0, chosen=chosen)


def test_values_are_those_that_are_chosen() -> None:
    choices = TileChoices(2, (4, 8), False, "not a choice")
    assert choice_values(choices) == {"rows": 2, "lanes": (4, 8), "is_packed": 0}
    assert choice_values(TileChoices(lanes=(4, 4))) == {"rows": 4, "lanes": 4}
    assert run_rule(_rule(grouped), 0, 0, chosen=choice_values(choices))[0] == TileChoices(2, (4, 8), False)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("size: int = 4", "argument 'size' is no choice: expected `NAME: Annotated"),
        ("size=4", "argument 'size' is no choice"),
        ("size: 'Unknown' = 4", "argument 'size' is no choice"),
        ("size: Rows", "choice 'size' has no default"),
    ],
)
def test_arguments_that_declare_nothing_are_an_error(source: str, message: str) -> None:
    scope = {"Rows": Rows}
    exec(f"def tiles(kernel, context, {source}): ...", scope)
    with pytest.raises(TypeError, match=f"schedule rule 'tiles': {message}"):
        arguments_of(scope["tiles"], 2)


def test_a_kind_of_function_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"tried for every prim function: write @schedule\(target=...\)"):
        schedule("any", target="llvm")
    with pytest.raises(TypeError, match="tried for every prim function"):
        schedule(single)


@pytest.mark.parametrize("target", [name for name in target_names() if name in ("llvm", "c", "nvvm", "spirv")])
def test_declarations_of_a_target_hold_together(target: str) -> None:
    """Values to measure are allowed, defaults too; a rule without choices runs with none."""
    find_target(target)
    rules = [rule for rule in SCHEDULE if rule.target == target]
    for choice in (choice for rule in rules for choice in rule.choices):
        assert choice.summary and all(value in choice.allowed for value in choice.tried)
        assert choice.default in (None, ()) or choice.default in choice.allowed
    for point in declared_points(target):
        ((name, value),) = point.items()
        assert any(name == choice.name and value in choice.tried for rule in rules for choice in rule.choices)
    assert bool(declared_points(target)) == (target == "llvm")


def test_errors_of_a_choice_are_errors_of_a_rule() -> None:
    assert issubclass(ChoiceError, RuleError)


def test_the_page_lists_the_rules_in_their_order() -> None:
    find_target("llvm")
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \|", (ROOT / "docs" / "schedules.md").read_text(), re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    own = [rule for rule in SCHEDULE.candidates(ANY, ("llvm", "default")) if not rule.is_foreign]
    assert listed == [rule.name for rule in own]
    priorities = [rule.priority for rule in own if rule.target == "llvm"]
    assert priorities == sorted(priorities, reverse=True)


def test_a_page_names_priorities_that_there_are() -> None:
    """What the page on rules of users says of the order of the built-in ones."""
    find_target("llvm")
    page = (ROOT / "docs" / "schedule-by-hand.md").read_text()
    named = [(name, int(number)) for name, number in re.findall(r"`(\w+)` \((\d+)\)", page)]
    own = {(rule.name, rule.priority) for rule in SCHEDULE if rule.target == "llvm"}
    assert named and set(named) <= own


def test_rules_of_llvm_are_registered_by_one_line() -> None:
    """Every file with a schedule rule is in the target's list of modules, and has a stage."""
    folder = ROOT / "targets" / "llvm"
    sources = {path: path.read_text() for path in folder.rglob("*.py") if path.name != "part_rules.py"}
    having = {path for path, text in sources.items() if re.search(r"^@(schedule|part_rule)\(", text, re.MULTILINE)}
    modules = {
        ".".join(("mirlo", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__") for path in having
    }
    assert modules and modules <= set(find_target("llvm").rule_modules)


def test_choices_by_name_are_choices_for_one_version() -> None:
    import mirlo.extend
    from mirlo.extend import rules
    from mirlo.testing import temporary_registrations

    with pytest.warns(DeprecationWarning, match="mirlo.extend.rules.RuleChoice is now mirlo.passes.rule_choices.Named"):
        kind = rules.RuleChoice
    with pytest.warns(DeprecationWarning, match="mirlo.extend.RuleChoice is now"):
        assert mirlo.extend.RuleChoice is kind
    choice = kind("size", range(1, 9), "elements of a block", True)
    with temporary_registrations(__name__):
        with pytest.warns(
            DeprecationWarning, match=r"@schedule\(choices=\[...\]\): choices are arguments of a rule now"
        ):

            @schedule(target="llvm", name="listed", choices=[choice])
            def listed(kernel: Any, context: Any) -> Any:
                return kernel

        (rule,) = [each for each in SCHEDULE.imported() if each.name == "listed"]
        assert [each.name for each in rule.choices] == ["size"] and rule.choices[0].is_per_loop
        assert rule.arguments.bind({"size": 4}) == {} and run_rule(rule, 1, 2, chosen={"size": 4}) == 1
