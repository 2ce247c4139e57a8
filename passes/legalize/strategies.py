"""Strategies: requests for one of several rules of an operator, by name.

    mirlo.compile(model, strategies={"relax.conv": "im2col"})
    mirlo.compile(model, strategies={"relax.conv": lambda op: "im2col" if op.weight.type.shape[0] > 64 else None})

A strategy is a rule with a name. The requested one is tried first; if it declines, the others of the chain are tried in
their order. A single function for all operators also receives the rules, for example to measure them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mirlo.dialects.bindings import ir
from mirlo.passes.legalize.conversion import Choose
from mirlo.passes.registry import PassError
from mirlo.passes.rules import Rule
from mirlo.runtime.callbacks import Expected, checked, is_text, optional
from mirlo.runtime.nearest import nearest

STRATEGIES = "strategies"
"""The session option: a name or a function per operator, or one function for all operators."""

Selector = str | Callable[[ir.OpView], "str | None"]


def chooser(wanted: Mapping[str, Selector] | Choose | None, operators: set[str]) -> Choose | None:
    """Return a function that evaluates the caller's strategies for an operator."""
    if not wanted:
        return None
    if not isinstance(wanted, Mapping):
        return _known(checked(wanted, _STRATEGY, "strategies", PassError))
    for operator in wanted:
        if operator not in operators:
            raise PassError(
                f"a strategy is given for '{operator}', which is not an operator{nearest(operator, operators)}"
            )

    selectors = {
        operator: checked(selector, _STRATEGY, f"strategy of '{operator}'", PassError)
        if callable(selector)
        else selector
        for operator, selector in wanted.items()
    }

    def choose(op: ir.OpView, rules: Sequence[Rule]) -> str | None:
        selector = selectors.get(op.operation.name)
        return selector(op) if callable(selector) else selector

    return _known(choose)


_STRATEGY = Expected("the name of a strategy, or None", optional(is_text))


def _known(choose: Choose) -> Choose:
    """Reject unknown strategies, which must not be ignored."""

    def choose_known(op: ir.OpView, rules: Sequence[Rule]) -> str | None:
        name = choose(op, rules)
        names = list(dict.fromkeys(rule.name for rule in rules))
        if name is not None and name not in names:
            hint = f"{nearest(str(name), names)}; it has: {', '.join(names)}"
            raise PassError(f"'{op.operation.name}' has no strategy '{name}'{hint}", op.operation.location)
        return name

    return choose_known
