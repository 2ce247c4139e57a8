"""The application of rules: legalization, intrinsics and rewriting of graphs, with patterns or without.

Rules are tried in order. What the first one that accepts returns must be values for the operation's results; what a
rule of a user emits is verified. The caller replaces the operation: through MLIR's dialect conversion, or at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.passes.made_by import check_emitted, operations_between, previous_operation
from mirlo.passes.rules import Attempt, Decline, Rule, RuleError, fault, run_rule
from mirlo.runtime.records import dataclass

RULE_WATCH = "rule watch"
"""Session option: an object that sees each replacement before it is made (`passes/exact/compare_rules.py`)."""


@dataclass(frozen=True)
class RuleCall:
    """The arguments with which a rule is called."""

    arguments: tuple[object, ...]
    created: Sequence[str] = ()
    """Names of what the rule creates, added by the builder among the arguments."""


@dataclass(frozen=True)
class AppliedRule:
    """The rule that accepted an operation, the values for its results, and the rules that declined before."""

    rule: Rule
    values: list[ir.Value]
    attempts: tuple[Attempt, ...]
    created: tuple[str, ...]
    """Names of what it created, where the builder notes them."""
    others: tuple[tuple[ir.Value, ir.Value], ...] = ()
    """Results of other operations that are replaced as well, with the values in their place."""


@dataclass(frozen=True)
class NoRule:
    """All rules declined an operation."""

    attempts: tuple[Attempt, ...]


def apply_rules(
    op: ir.Operation,
    rules: Iterable[Rule],
    call_of: Callable[[Rule], RuleCall],
    at: ir.InsertionPoint | None = None,
    plain: Callable[[object], object] = lambda value: value,
) -> AppliedRule | NoRule:
    """Try rules at an operation, in order; return the values by which the first one that accepts replaces its results.

    Rules emit at `at`, by default before the operation. `plain` returns the value in MLIR of what a rule may return. A
    rule that replaces results of several operations returns a mapping from results to values.
    """
    attempts: list[Attempt] = []
    results: list[ir.Value] = list(op.results)
    behind = op if at is None or at.ref_operation is None else at.ref_operation.operation
    # What a rule makes without its builder stands here as well.
    with at or ir.InsertionPoint(op), op.location:
        for rule in rules:
            call = call_of(rule)
            before = previous_operation(behind) if rule.is_foreign else None
            outcome = run_rule(rule, *call.arguments, empty=not results)
            if isinstance(outcome, Decline):
                if call.created:
                    raise RuleError(
                        f"rule '{rule}' at {rule.place} declined after it had made {', '.join(call.created)}: "
                        "a rule decides first, then builds"
                    )
                attempts.append(Attempt(rule, outcome))
                continue
            replaced, listed = _pairs(results, outcome)
            values: list[Any] = [plain(value) for value in listed]
            problem = _problem_of(replaced, values)
            if problem is not None:
                attempts.append(Attempt(rule, fault(rule, problem)))
                continue
            if rule.is_foreign:
                check_emitted(rule, operations_between(before, behind))
            others = tuple(zip(replaced[len(results) :], values[len(results) :], strict=True))
            return AppliedRule(rule, values[: len(results)], tuple(attempts), tuple(call.created), others)
    return NoRule(tuple(attempts))


def _pairs(results: list[ir.Value], outcome: object) -> tuple[list[ir.Value], list[object]]:
    """Return the results that a rule replaces, those of its operation first, each with its new value."""
    if isinstance(outcome, Mapping):
        replaced = [*results, *(value for value in outcome if value not in results)]
        return replaced, [outcome.get(value) for value in replaced]
    return results, list(outcome) if isinstance(outcome, (tuple, list)) else [] if outcome is None else [outcome]


def _problem_of(results: list[ir.Value], values: list[Any]) -> str | None:
    """Return why values that a rule returned cannot replace these results, or None."""
    if len(values) != len(results):
        return f"returned {len(values)} values for {len(results)} results"
    for i, (value, result) in enumerate(zip(values, results, strict=True)):
        if not isinstance(value, ir.Value):
            expected = "expected a value, which the builder's methods give"
            return f"returned a {type(value).__name__} for result #{i}: {expected}"
        if value == result:
            return f"returned result #{i} itself: nothing would change"
        if value.type != result.type:
            return f"returned {value.type} for result #{i}, which is {result.type}"
    return None
