"""The first pass after which a part of a model departs from what is expected.

Passes that a pipeline can do without are found by trying. With none of them the part is compiled in the plainest way;
then they come back one after another, in their order: the first that makes the result depart is the one. Where the
plainest way departs already, one of the passes that are always needed is to blame, and the rules that they used on the
part are told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mirlo.passes.pipeline import Pipeline
from mirlo.passes.targets import CompileOptions, find_target
from mirlo.tools.bisect.nodes import Tell
from mirlo.tools.bisect.submodel import Part
from mirlo.tools.bisect.trial import Settings, Trial, try_part


@dataclass(frozen=True)
class Culprit:
    """What is to blame."""

    name: str | None
    """The pass; None where the passes that are always needed depart by themselves."""
    position: int
    """Its place in the pipeline that shows it."""
    pipeline: str
    """Passes that show it, as few as can be."""
    rules: tuple[str, ...] = ()
    """Rules that were at work."""


def first_departing_pass(part: Part, expected: Mapping[str, Any], settings: Settings, tell: Tell) -> Culprit:
    """The pass that makes a part depart, for a part that does."""
    steps = _steps(settings)
    optional = [i for i in range(len(steps)) if _works_without(steps, {i}, part, expected, settings)]
    dropped = _drop_together(steps, optional, part, expected, settings)
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


def _steps(settings: Settings) -> list[str]:
    """The passes of the pipeline, as text."""
    chosen = find_target(settings.target)
    if settings.pipeline is not None:
        return [str(step) for step in Pipeline(settings.pipeline)]
    assert chosen.pipeline is not None
    return [str(step) for step in Pipeline(chosen.pipeline(CompileOptions(settings.target, settings.threads)))]


def _text(steps: Sequence[str], chosen: Sequence[int]) -> str:
    return f"builtin.module({','.join(steps[i] for i in chosen)})"


def _try(
    steps: Sequence[str], chosen: Sequence[int], part: Part, expected: Mapping[str, Any], settings: Settings
) -> Trial:
    return try_part(part, expected, replace(settings, pipeline=_text(steps, chosen)))


def _works_without(
    steps: Sequence[str], dropped: set[int], part: Part, expected: Mapping[str, Any], settings: Settings
) -> bool:
    """Whether there is code without these passes, right or wrong."""
    chosen = [i for i in range(len(steps)) if i not in dropped]
    return not _try(steps, chosen, part, expected, settings).failed


def _drop_together(
    steps: Sequence[str], optional: Sequence[int], part: Part, expected: Mapping[str, Any], settings: Settings
) -> set[int]:
    """As many of the optional passes as can be left out at once: some are needed when others are not there."""
    if _works_without(steps, set(optional), part, expected, settings):
        return set(optional)
    dropped: set[int] = set()
    for i in reversed(optional):
        if _works_without(steps, {*dropped, i}, part, expected, settings):
            dropped.add(i)
    return dropped


def _departs(
    steps: Sequence[str], chosen: Sequence[int], part: Part, expected: Mapping[str, Any], settings: Settings
) -> str | None:
    return _try(steps, chosen, part, expected, settings).departs


def _rules(part: Part, settings: Settings) -> tuple[str, ...]:
    """The legalization and schedule rules that a compilation of the part uses."""
    from mirlo.runtime.errors import MirloError
    from mirlo.tools.explain.model import explain_model
    from mirlo.tools.explain.rules import short_place

    try:
        explanation = explain_model(part.model, settings.target, threads=settings.threads)
    except MirloError:
        return ()
    found = [
        f"{record.operator}: {record.rule.name} ({short_place(record.rule)})"
        for node in explanation.nodes
        for record in node.operators
        if record.rule is not None
    ]
    found += [
        f"@{kernel.name}: {kernel.schedule.rule.name} ({short_place(kernel.schedule.rule)})"
        for kernel in explanation.kernels
        if kernel.schedule is not None
    ]
    return tuple(dict.fromkeys(found))
