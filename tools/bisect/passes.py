"""Search for the first pass after which a submodel departs from the expected values.

Passes that a pipeline can omit are found by trial. The submodel is compiled without any of them; then they are added
one by one, in pipeline order: the first that makes the result depart is to blame. If the minimal pipeline departs
already, one of its required passes is to blame, and the rules that they applied are reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.pipeline import Pipeline
from mirlo.tools.bisect.nodes import Tell
from mirlo.tools.bisect.submodel import Submodel
from mirlo.tools.bisect.trial import Trial, TrialOptions, try_submodel


@dataclass(frozen=True)
class Culprit:
    """The pass or the rules to blame."""

    name: str | None
    """The pass; None if the required passes alone depart."""
    position: int
    """Its position in the pipeline that shows it."""
    pipeline: str
    """A minimal pipeline that shows it."""
    rules: tuple[str, ...] = ()
    """Rules that were applied."""


def first_departing_pass(part: Submodel, expected: Mapping[str, Any], settings: TrialOptions, tell: Tell) -> Culprit:
    """Return the pass that makes a submodel depart; the submodel must depart."""
    steps = _steps(settings)
    optional = [i for i in range(len(steps)) if _works_without(steps, {i}, part, expected, settings)]
    dropped = _omit_passes(steps, optional, part, expected, settings)
    tell(f"{len(dropped)} of {len(steps)} passes can be left out")
    plain = [i for i in range(len(steps)) if i not in dropped]
    if _departs(steps, plain, part, expected, settings):
        return Culprit(None, -1, _text(steps, plain), _rules(part, settings))
    present = set(plain)
    for i in sorted(dropped):
        present.add(i)
        chosen = sorted(present)
        departs = _departs(steps, chosen, part, expected, settings)
        tell(f"with {steps[i]}: {departs or 'as expected'}")
        if departs:
            return Culprit(steps[i], chosen.index(i), _text(steps, chosen), _rules(part, settings))
    return Culprit(None, -1, _text(steps, range(len(steps))), _rules(part, settings))


def _steps(settings: TrialOptions) -> list[str]:
    """Return the passes of the pipeline as text."""
    if settings.pipeline is not None:
        return [str(step) for step in Pipeline(settings.pipeline)]
    return [str(step) for step in Pipeline(Targets.parse(settings.target).pipeline(settings.threads))]


def _text(steps: Sequence[str], chosen: Sequence[int]) -> str:
    return f"builtin.module({','.join(steps[i] for i in chosen)})"


def _try(
    steps: Sequence[str], chosen: Sequence[int], part: Submodel, expected: Mapping[str, Any], settings: TrialOptions
) -> Trial:
    return try_submodel(part, expected, replace(settings, pipeline=_text(steps, chosen)))


def _works_without(
    steps: Sequence[str], dropped: set[int], part: Submodel, expected: Mapping[str, Any], settings: TrialOptions
) -> bool:
    """Return whether compilation succeeds without these passes, with right or wrong results."""
    chosen = [i for i in range(len(steps)) if i not in dropped]
    return not _try(steps, chosen, part, expected, settings).failed


def _omit_passes(
    steps: Sequence[str], optional: Sequence[int], part: Submodel, expected: Mapping[str, Any], settings: TrialOptions
) -> set[int]:
    """Return as many optional passes as can be omitted together: some are needed if others are missing."""
    if _works_without(steps, set(optional), part, expected, settings):
        return set(optional)
    dropped: set[int] = set()
    for i in reversed(optional):
        if _works_without(steps, {*dropped, i}, part, expected, settings):
            dropped.add(i)
    return dropped


def _departs(
    steps: Sequence[str], chosen: Sequence[int], part: Submodel, expected: Mapping[str, Any], settings: TrialOptions
) -> str | None:
    return _try(steps, chosen, part, expected, settings).departs


def _rules(part: Submodel, settings: TrialOptions) -> tuple[str, ...]:
    """Return the legalization and schedule rules that a compilation of the submodel applies."""
    from mirlo.runtime.errors import MirloError
    from mirlo.tools.explain.model import explain_model
    from mirlo.tools.explain.rules import short_position

    try:
        explanation = explain_model(part.model, settings.target, threads=settings.threads)
    except MirloError:
        return ()
    found = [
        f"{record.operator}: {record.rule.name} ({short_position(record.rule)})"
        for node in explanation.nodes
        for record in node.operators
        if record.rule is not None
    ]
    found += [
        f"@{kernel.name}: {kernel.schedule.rule.name} ({short_position(kernel.schedule.rule)})"
        for kernel in explanation.kernels
        if kernel.schedule is not None
    ]
    return tuple(dict.fromkeys(found))
