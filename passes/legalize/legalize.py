"""The pass `legalize`: converts relax operators to calls of prim functions by rules, through dialect conversion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from mirlo.dialects import relax
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import EXTRA_DIALECTS, graph_operations
from mirlo.dialects.core.installed import ModuleIndex, import_modules
from mirlo.dialects.core.traits import Trait
from mirlo.dialects.tir.own_intrinsics import OWN
from mirlo.passes.graph.require_dims import require_dims
from mirlo.passes.legalize.conversion import Choose, Conversion, LegalizationRecord
from mirlo.passes.node_keys import NODE, check_nodes
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.passes.rules import LEGALIZE, Given, Rule, functions_of
from mirlo.passes.targets import chain, rules_target
from mirlo.runtime.callbacks import Expected, checked, is_text, optional
from mirlo.runtime.errors import nearest
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session

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


__all__ = ["LegalizationRecord", "Legalize", "load_default_rules", "operator_names"]

LEGAL = frozenset(name for name, op in relax.DIALECT.operations.items() if Trait.INTERFACE in op.TRAITS) | {
    "relax.reshape"
}
"""Legal operators: the interface to the level of prim functions."""

CUSTOM_RULES = "legalize"
"""The session option with a caller's own rules, by operator: tried before all others."""
SEEN = "legalize seen"
"""The session option with the operators, and the keys of nodes, that runs of the pass tried rules for."""

MAX_RULE_ITERATIONS = 8
"""Most rounds: rules may emit operators that need rules in turn, and no chain is this long."""


def load_default_rules() -> None:
    """Import the modules that register the default rules."""
    import_modules("mirlo.passes.legalize.rules")


LEGALIZE.defer(ModuleIndex("mirlo.passes.legalize.rules"))


def operator_names() -> set[str]:
    """Return the operators that can have rules: relax's, and those of plug-in dialects."""
    return graph_operations().keys() - LEGAL


@register_pass
@dataclass(frozen=True)
class Legalize(Pass):
    """Convert relax operators to calls of tir prim functions.

    Rules are tried along the target chain, within a target by priority. A rule that declines gives a reason, and the
    next one is tried. An operator that no rule accepts is an error that lists every rule with its reason.
    """

    name = "legalize"
    keeps_layers = True
    contained = True
    target: str = option(
        "", "target whose rules come first (default: that of the external module where it runs, else llvm)"
    )
    skip: tuple[str, ...] = option((), "operators to leave alone")
    partial: bool = option(False, "leave operators that no rule takes, instead of failing")

    def run(self, op: ir.OpView, session: Session) -> None:
        targets = chain(rules_target(self.target, op))
        custom = session.options.get(CUSTOM_RULES) or {}
        known = operator_names()
        require_dims(op)
        _check_names(known, targets, custom, self.skip)
        check_nodes(custom, "legalize", op, session)
        left_alone = LEGAL | set(self.skip)
        prefixes = ("relax.", *(f"{dialect.namespace}." for dialect in EXTRA_DIALECTS))

        def is_pending(name: str) -> bool:
            return name.startswith(prefixes) and name not in left_alone and name not in OWN

        conversion = Conversion(
            op, targets, custom, is_pending, chooser(session.options.get(STRATEGIES), known), session
        )
        for _ in range(MAX_RULE_ITERATIONS):
            if not conversion.run():
                break
        conversion.finish()
        session.notes.extend(conversion.records)
        session.options.setdefault(SEEN, set()).update(conversion.seen)
        if not self.partial:
            conversion.gate()


def _check_names(known: set[str], targets: Sequence[str], custom: Given, skip: Iterable[str]) -> None:
    """Reject rules for operators that do not exist: they would silently never be tried."""
    for operator in custom:
        if operator not in known and not operator.startswith(NODE):
            origins = ", ".join(Rule("legalize", operator, "custom", f).place for f in functions_of(custom[operator]))
            raise PassError(
                f"a legalization is given for '{operator}' (at {origins}), {_unknown_operator(operator, known)}"
            )
    for operator in skip:
        if operator not in known:
            raise PassError(f"'{operator}' is to be skipped, {_unknown_operator(operator, known)}")
    for rule in LEGALIZE.imported():
        if rule.target in targets and rule.subject not in known and not isinstance(rule.subject, Trait):
            raise PassError(
                f"rule '{rule}' at {rule.place} is for '{rule.subject}', {_unknown_operator(rule.subject, known)}"
            )


def _unknown_operator(operator: str, known: set[str]) -> str:
    if operator in LEGAL:
        return "which is never legalized: it is part of the level below"
    return f"which is not an operator{nearest(operator, known)}"
