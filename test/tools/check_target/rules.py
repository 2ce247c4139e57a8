"""Targets with rules of their own: correct ones are accepted, and each fault in one is found."""

from __future__ import annotations

import numpy as np
import pytest
from broken_rules import KINDS, RULE_FAULTS, chip, schedules

from mirlo.tools.conformance.check import OK, RuleResults, names, own_rules


def complaints(target: str) -> tuple[list[str], list[str]]:
    """Return what the check of a target's own rules finds wrong, and the rules that it has no case for."""
    results = RuleResults(target, [rule for rule in own_rules(target, names(), True) if rule.target == target])
    results.check([], [])
    texts = [t for c in results.checks.values() for own in (*c.kinds.values(), *c.failures.values()) for t in own if t]
    with np.errstate(all="ignore"):
        verdicts = [judge(outcome) for _, _, judge, outcome in results.judged]
    texts += [verdict.detail for verdict in verdicts if verdict.status != OK]
    return texts, [f"{rule.name}: {reason}" for rule, reason in results.unreached]


@pytest.mark.sample(14)
@pytest.mark.parametrize("fault", RULE_FAULTS)
def test_faults_are_reported(fault: str) -> None:
    wrong, unreached = complaints(chip(fault))
    assert wrong and not unreached


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", KINDS)
def test_correct_rules_are_not_accused(kind: str) -> None:
    assert complaints(chip("", kind)) == ([], [])


@pytest.mark.sample(0)
@pytest.mark.parametrize("fault", ["schedule_last_iteration", ""])
def test_schedule_rules_behind_others_are_checked(fault: str) -> None:
    """A rule that never has a turn, as another one takes the same kernels first: `apply_rule` may name it."""
    target = chip("", "schedules")
    schedules(target, fault, priority=-1)
    wrong, unreached = complaints(target)
    assert (bool(wrong), unreached) == (bool(fault), [])
