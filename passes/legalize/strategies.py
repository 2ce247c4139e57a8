"""Strategies: which of several rules for an operator is wanted, by name.

    mirlo.compile(model, strategies={"relax.conv": "im2col"})
    mirlo.compile(model, strategies={"relax.conv": lambda op: "im2col" if op.weight.type.shape[0] > 64 else None})

A strategy is a rule, known by its name. The one that is asked for is tried first; where it declines, the others of the
chain are tried in their order. A single function for all operators is given the rules as well: measuring is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mirlo.passes.legalize.conversion import Choose
from mirlo.passes.registry import PassError
from mirlo.passes.rules import Rule, nearest

STRATEGIES = "strategies"
"""The session's option: by operator a name, or a function of the operator; or one function for all of them."""

Selector = str | Callable[[Any], "str | None"]


def chooser(wanted: Mapping[str, Selector] | Choose | None, operators: set[str]) -> Choose | None:
    """What asks the caller's strategies about an operator."""
    if not wanted:
        return None
    if not isinstance(wanted, Mapping):
        return _checked(wanted)
    for operator in wanted:
        if operator not in operators:
            raise PassError(f"a strategy is given for '{operator}', which is no operator{nearest(operator, operators)}")

    def choose(op: Any, rules: Sequence[Rule]) -> str | None:
        selector = wanted.get(op.operation.name)
        return selector(op) if callable(selector) else selector

    return _checked(choose)


def _checked(choose: Choose) -> Choose:
    """A strategy that does not exist must not be passed over."""

    def checked(op: Any, rules: Sequence[Rule]) -> str | None:
        name = choose(op, rules)
        names = list(dict.fromkeys(rule.name for rule in rules))
        if name is not None and name not in names:
            hint = f"{nearest(str(name), names)}; it has: {', '.join(names)}"
            raise PassError(f"'{op.operation.name}' has no strategy '{name}'{hint}", op.operation.location)
        return name

    return checked
