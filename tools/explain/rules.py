"""The rules for an operator, an intrinsic or a kind of prim function, in the order in which they are tried."""

from __future__ import annotations

import os
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from mirlo.dialects.context import load_installed_dialects
from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.dialects.tir.own_intrinsics import OWN
from mirlo.passes.legalize.legalize import load_default_rules, operator_names
from mirlo.passes.rule_choices import Choice
from mirlo.passes.rules import INTRINSIC, LEGALIZE, SCHEDULE, Rule
from mirlo.passes.targets import chain
from mirlo.runtime.errors import MirloError
from mirlo.runtime.records import dataclass
from mirlo.tools.tables import columns

PACKAGE_PARENT = str(Path(__file__).resolve().parents[3])
SCHEDULES = "schedule"
"""What the schedules of prim functions are asked for by; `schedule.any` is one subject of them."""


class UnknownSubject(MirloError):
    """There is no operator, intrinsic or schedule of this name."""

    error_code = "MIR0710"
    remedy = "Name an operator, an intrinsic, `schedule`, `loop-passes`, a code of an error, or the file of a model."


@dataclass(frozen=True)
class RuleChain:
    """The rules of one subject on a target."""

    name: str
    what: str
    """What the rules do: legalization, intrinsic lowering, schedule."""
    targets: tuple[str, ...]
    rules: tuple[Rule, ...]


def rule_chains(name: str, target: str) -> list[RuleChain]:
    """Return the chains of a name: `relax.softmax`, `tir.exp`, `schedule`, or `exp` for an operator and more."""
    load_installed_dialects()
    targets = chain(target)
    subjects = _subjects()
    wanted = [name] if name in subjects else [f"{space}.{name}" for space in _namespaces(subjects)]
    chains = [subject for subject in wanted if subject in subjects]
    if name == SCHEDULES:
        chains = [subject for subject in subjects if subject.startswith(f"{SCHEDULES}.")]
    if not chains:
        raise UnknownSubject(_unknown_subject(name, subjects))
    return [_chain(subject, subjects[subject], targets) for subject in chains]


def _chain(subject: str, what: str, targets: tuple[str, ...]) -> RuleChain:
    book = {"legalization": LEGALIZE, "intrinsic lowering": INTRINSIC, "schedule": SCHEDULE}[what]
    key = subject.removeprefix("tir.") if book is INTRINSIC else subject
    key = key.split(".", 1)[1] if book is SCHEDULE else key
    return RuleChain(subject, what, targets, tuple(book.candidates(key, targets)))


def _subjects() -> dict[str, str]:
    """Return the kind of rules of each subject that can have rules."""
    from mirlo.passes.lower import intrinsics  # noqa: F401  (registers its rules)
    from mirlo.passes.schedule import schedule  # noqa: F401  (registers its rules)

    load_default_rules()
    subjects = {name: "legalization" for name in sorted(operator_names())}
    subjects |= {f"tir.{name}": "intrinsic lowering" for name in INTRINSICS}
    subjects |= dict.fromkeys(OWN, "intrinsic lowering")
    return subjects | {f"{SCHEDULES}.{name}": "schedule" for name in sorted(SCHEDULE.subjects())}


def _namespaces(subjects: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(subject.split(".", 1)[0] for subject in subjects))


def _unknown_subject(name: str, subjects: dict[str, str]) -> str:
    short = {subject.split(".", 1)[1]: subject for subject in subjects}
    near = get_close_matches(name, subjects, n=3) or [short[word] for word in get_close_matches(name, short, n=3)]
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"there is no operator, intrinsic or schedule '{name}', and no such file{hint}"


def chain_lines(chain: RuleChain) -> list[str]:
    """Format a chain as text: a line for each rule, in order."""
    way = " → ".join(chain.targets)
    if not chain.rules:
        return [f"{chain.name} on {way}: no rule is registered for its {chain.what}"]
    rows = []
    some_priority = any(rule.priority for rule in chain.rules)
    for number, rule in enumerate(chain.rules, 1):
        cells = [f"  {number}.", rule.name, f"[{rule.target}]", short_position(rule), rule.summary]
        if some_priority:
            cells.insert(3, f"priority {rule.priority}" if rule.priority else "")
        rows.append(cells)
    lines = [f"{chain.name} on {way}: {chain.what}, tried in this order"]
    for rule, line in zip(chain.rules, columns(rows), strict=True):
        lines += [line, *(f"       {_choice(choice)}" for choice in rule.choices)]
    return lines


def _choice(choice: Choice) -> str:
    """Return a choice of a rule as text, with its default and the values that tuning measures."""
    decides = choice.default is None or choice.default == ()
    default = "; the rule decides" if decides else f"; default {choice.default}"
    tried = f"; measured: {', '.join(map(str, choice.tried))}" if choice.tried else ""
    return f"{choice.name}: {choice.summary} ({choice.range_text}){default}{tried}"


def chain_json(chain: RuleChain) -> dict[str, object]:
    """Return a chain as JSON."""
    rules = [rule_json(rule) for rule in chain.rules]
    return {"name": chain.name, "rules_for": chain.what, "chain": list(chain.targets), "rules": rules}


def rule_json(rule: Rule) -> dict[str, object]:
    """Return a rule as JSON, with its choices if it has any."""
    file, _, line = rule.place.rpartition(":")
    choices = [
        {
            "name": c.name,
            "values": c.range_text,
            "default": None if c.default == () else c.default,
            "measured": list(c.tried),
            "summary": c.summary,
        }
        for c in rule.choices
    ]
    return {
        "name": rule.name, "target": rule.target, "priority": rule.priority,
        "file": file, "line": int(line) if line.isdecimal() else None, "summary": rule.summary,
        **({"choices": choices} if choices else {}),
    }  # fmt: skip


def short_position(rule: Rule) -> str:
    """Return `file:line`, relative to the current folder or to the package."""
    file, _, line = rule.place.rpartition(":")
    for base in (os.getcwd(), PACKAGE_PARENT):
        relative = os.path.relpath(file, base) if os.path.isabs(file) else file
        if not relative.startswith(os.pardir):
            return f"{relative}:{line}"
    return rule.place
