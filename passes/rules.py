"""The rule system: legalization, intrinsic lowering and scheduling are one idea.

Rules are registered for a subject (an operator, an intrinsic, a kind of prim function) on a target. For one subject
they are tried in order: a user's own map first, then along the target chain (`mydsp → llvm → default`), within a
target by priority. The first that accepts wins. A rule that declines returns `decline("why", fact=...)`; the reason is
recorded and the next rule is tried. Returning None is a mistake in the rule, and an error that names it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mirlo.runtime.errors import MirloError

DEFAULT = "default"
"""The last target of every chain."""


@dataclass(frozen=True)
class Decline:
    """Why a rule does not apply: a sentence, and the facts that it rests on."""

    reason: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        facts = ", ".join(f"{name}={value}" for name, value in self.facts.items())
        return f"{self.reason} ({facts})" if facts else self.reason


def decline(reason: str, **facts: Any) -> Decline:
    """What a rule returns when it does not apply."""
    return Decline(reason, facts)


@dataclass(frozen=True)
class Rule:
    """A function registered for a subject on a target."""

    kind: str
    subject: str
    target: str
    function: Callable[..., Any]
    priority: int = 0
    name: str = ""

    @property
    def place(self) -> str:
        """`file:line` where the rule was written."""
        try:
            function = inspect.unwrap(self.function)
            return f"{inspect.getsourcefile(function)}:{inspect.getsourcelines(function)[1]}"
        except (TypeError, OSError):
            return "<unknown>"

    def __str__(self) -> str:
        return f"{self.name} for {self.subject} on {self.target}"


@dataclass(frozen=True)
class Attempt:
    """A rule that was tried and declined."""

    rule: Rule
    decline: Decline

    def __str__(self) -> str:
        return f"{self.rule.name} [{self.rule.target}]: {self.decline}"


class RuleBook:
    """All registered rules of one kind."""

    def __init__(self, kind: str):
        self.kind = kind
        self._rules: dict[tuple[str, str], list[Rule]] = {}

    def add(self, subject: str, target: str, function: Callable[..., Any], priority: int = 0, name: str = "") -> Rule:
        rule = Rule(self.kind, subject, target, function, priority, name or getattr(function, "__name__", "rule"))
        present = self._rules.setdefault((subject, target), [])
        for other in present:
            if other.name == rule.name and other.priority == priority and other.function is not function:
                raise ValueError(f"{self.kind} rule '{rule}' is registered twice: at {other.place} and at {rule.place}")
        present.append(rule)
        present.sort(key=lambda r: -r.priority)
        return rule

    def subjects(self) -> set[str]:
        return {subject for subject, _ in self._rules}

    def candidates(
        self, subject: str, chain: Iterable[str], custom: Mapping[str, Callable[..., Any]] | None = None
    ) -> list[Rule]:
        """Rules for this subject, in the order in which they are tried."""
        found = []
        if custom and subject in custom:
            function = custom[subject]
            found.append(Rule(self.kind, subject, "custom", function, name=getattr(function, "__name__", "rule")))
        for target in chain:
            found += self._rules.get((subject, target), [])
        return found

    def decorator(self, *subjects: str, target: str = DEFAULT, priority: int = 0) -> Callable[[Any], Any]:
        """Register the decorated function for these subjects."""

        def register(function: Any) -> Any:
            for subject in subjects:
                self.add(subject, target, function, priority)
            return function

        return register


class RuleError(MirloError, RuntimeError):
    """A rule that misbehaves, or a subject that every rule declined."""


def try_rules(rules: Iterable[Rule], *arguments: Any) -> tuple[Any, Rule | None, list[Attempt]]:
    """Result and rule of the first that accepts, and the attempts before it."""
    attempts: list[Attempt] = []
    for rule in rules:
        outcome = rule.function(*arguments)
        if outcome is None:
            raise RuleError(f"rule '{rule}' at {rule.place} returned nothing: return a result or decline('why')")
        if not isinstance(outcome, Decline):
            return outcome, rule, attempts
        attempts.append(Attempt(rule, outcome))
    return None, None, attempts


LEGALIZE = RuleBook("legalize")
INTRINSIC = RuleBook("intrinsic")
SCHEDULE = RuleBook("schedule")


def legalize(*operators: str, target: str = DEFAULT, priority: int = 0) -> Callable[[Any], Any]:
    """Register a legalization: `f(op, builder)` returns the values that replace the operator's results."""
    return LEGALIZE.decorator(*operators, target=target, priority=priority)


def intrinsic(*names: str, target: str = DEFAULT, priority: int = 0) -> Callable[[Any], Any]:
    """Register the lowering of intrinsics: `f(op, builder)` returns the value that replaces `tir.<name>`."""
    return INTRINSIC.decorator(*names, target=target, priority=priority)


def schedule(*kinds: str, target: str = DEFAULT, priority: int = 0) -> Callable[[Any], Any]:
    """Register the schedule of a kind of prim function."""
    return SCHEDULE.decorator(*kinds, target=target, priority=priority)


SIMPLIFY = RuleBook("simplify")
LAYOUT = RuleBook("layout")


def simplify(*operators: str, priority: int = 0) -> Callable[[Any], Any]:
    """Register a simplification: `f(op, rewriter)` returns the values that replace the operator's results."""
    return SIMPLIFY.decorator(*operators, priority=priority)


def layout(*operators: str, priority: int = 0) -> Callable[[Any], Any]:
    """Register how an operator moves through a change of layout: like a simplification, run by `convert-layout`."""
    return LAYOUT.decorator(*operators, priority=priority)
