"""Search for the first pass after which a submodel departs from the expected values.

Passes that a pipeline can omit are found by trial. The submodel is compiled without any of them; then they are added
one by one, in pipeline order: the first that makes the result depart is to blame. If the minimal pipeline departs
already, one of its required passes is to blame: the one that applied a rule without which the result is as expected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.pipeline import Pipeline
from mirlo.runtime.records import dataclass
from mirlo.tools.bisect.nodes import ReportProgress
from mirlo.tools.bisect.submodel import Submodel
from mirlo.tools.bisect.trial import Trial, TrialOptions, try_submodel

if TYPE_CHECKING:
    from mirlo.tools.bisect.compare import ModelValue


CODEGEN = "codegen-external"
"""The pass that runs the code generators."""


@dataclass(frozen=True)
class Culprit:
    """The pass or the rules to blame."""

    name: str | None
    """The pass; None if the required passes alone depart, and no rule of theirs can be left out."""
    position: int
    """Its position in the pipeline that shows it."""
    pipeline: str
    """A minimal pipeline that shows it."""
    rules: tuple[str, ...] = ()
    """Rules that were applied, of every kind."""
    rule: str = ""
    """The rule of a required pass without which the result is as expected."""
    reason: str = ""
    """Why no pass is named."""
    pattern: str = ""
    """The pattern, as `target.pattern`, whose code generator departs; empty for the host's rules."""
    failed: bool = False
    """Whether compilation fails there, or the process dies: `name` may then also be another step, such as `emit`."""


def departing_generator(
    part: Submodel, patterns: Sequence[str], trial: Trial, expected: Mapping[str, ModelValue], settings: TrialOptions,
    progress: ReportProgress, is_rounding: Callable[[Trial], bool],
) -> Culprit | None:  # fmt: skip
    """Return the code generator without which a submodel is as expected, but for rounding; None if there is none.

    `patterns` are those whose composites the submodel has.
    """
    targets = Targets.parse(settings.target)
    if settings.pipeline is not None or targets.host is None:
        return None
    for generator in targets.generators:
        others = [str(target) for target in (*targets.generators, targets.host) if target is not generator]
        again = try_submodel(part, expected, replace(settings, target=",".join(others)))
        progress(f"without target {generator}: {again.departs or 'as expected'}")
        if again.departs is not None and not is_rounding(again):
            continue
        steps = pipeline_steps(settings)
        own = [i for i, step in enumerate(steps) if generator.name in step]
        # A generator that leaves its regions to Mirlo has a pipeline for them after `partition`, no code of its own.
        position = next((i for i in own if _name(steps[i]) == CODEGEN), own[-1])
        pattern = ", ".join(name for name in patterns if name.startswith(f"{generator.name}.")) or generator.name
        text = _text(steps, range(len(steps)))
        return Culprit(steps[position], position, text, trial.rules, pattern=pattern, failed=trial.failed)
    return None


def first_departing_pass(
    part: Submodel, expected: Mapping[str, ModelValue], settings: TrialOptions, progress: ReportProgress
) -> Culprit:
    """Return the pass that makes a submodel depart; the submodel must depart."""
    steps = pipeline_steps(settings)
    optional = [i for i in range(len(steps)) if _works_without(steps, {i}, part, expected, settings)]
    dropped = _omit_passes(steps, optional, part, expected, settings)
    progress(f"{len(dropped)} of {len(steps)} passes can be left out")
    plain = [i for i in range(len(steps)) if i not in dropped]
    trial = _try(steps, plain, part, expected, settings)
    if trial.departs:
        alone = _departing_alone(steps, [i for i in plain if i in optional], part, expected, settings, progress)
        return alone or _departing_rule(steps, plain, trial, part, expected, settings, progress)
    present = set(plain)
    for i in sorted(dropped):
        present.add(i)
        chosen = sorted(present)
        trial = _try(steps, chosen, part, expected, settings)
        progress(f"with {steps[i]}: {trial.departs or 'as expected'}")
        if trial.departs:
            return Culprit(steps[i], chosen.index(i), _text(steps, chosen), trial.rules)
    reason = "the passes together gave results as expected when they were tried again: what departs changes"
    return Culprit(None, -1, _text(steps, range(len(steps))), trial.rules, reason=reason)


def _departing_alone(
    steps: Sequence[str],
    candidates: Sequence[int],
    part: Submodel,
    expected: Mapping[str, ModelValue],
    settings: TrialOptions,
    progress: ReportProgress,
) -> Culprit | None:
    """Return the pass without which the whole pipeline gives the expected result; None if there is none.

    A minimal pipeline needs a wrong pass that removes what a later one, which was left out, would lower.
    """
    for i in candidates:
        again = _try(steps, [other for other in range(len(steps)) if other != i], part, expected, settings)
        progress(f"without {steps[i]}: {again.departs or 'as expected'}")
        if again.departs is None:
            whole = _try(steps, range(len(steps)), part, expected, settings)
            return Culprit(steps[i], i, _text(steps, range(len(steps))), whole.rules)
    return None


def _departing_rule(
    steps: Sequence[str],
    chosen: Sequence[int],
    trial: Trial,
    part: Submodel,
    expected: Mapping[str, ModelValue],
    settings: TrialOptions,
    progress: ReportProgress,
) -> Culprit:
    """Return the required pass that applied the rule to blame: without it, others give the expected result."""
    needed: list[str] = []
    text = _text(steps, chosen)
    for rule in trial.rules:
        left_out = replace(settings, without=frozenset((rule,)))
        again = try_submodel(part, expected, replace(left_out, pipeline=text))
        if again.failed:  # what replaces it may need other passes
            again = _try(steps, range(len(steps)), part, expected, left_out)
        progress(f"without rule {rule}: {again.departs or 'as expected'}")
        if again.failed:
            needed.append(rule)
        elif again.departs is None:
            position = next(at for at, i in enumerate(chosen) if _name(steps[i]) == trial.steps[rule])
            return Culprit(steps[chosen[position]], position, text, trial.rules, rule)
    listed = f"; these are needed, and may be to blame: {', '.join(needed)}" if needed else ""
    reason = f"every pass of this pipeline is needed, and it departs without each rule that can be left out{listed}"
    return Culprit(None, -1, text, trial.rules, reason=reason)


def _name(step: str) -> str:
    return step.partition("{")[0]


def failing_pass(trial: Trial, settings: TrialOptions) -> Culprit:
    """Return the step in which a submodel's compilation fails or the process dies."""
    steps = pipeline_steps(settings)
    named = [i for i, step in enumerate(steps) if _name(step) == trial.step]
    name = steps[named[0]] if named else trial.step
    return Culprit(name, -1, _text(steps, range(len(steps))), trial.rules, failed=True)


def pipeline_steps(settings: TrialOptions) -> list[str]:
    """Return the passes of the pipeline as text."""
    if settings.pipeline is not None:
        return [str(step) for step in Pipeline(settings.pipeline)]
    return [str(step) for step in Pipeline(Targets.parse(settings.target).pipeline(settings.threads))]


def _text(steps: Sequence[str], chosen: Sequence[int]) -> str:
    return f"builtin.module({','.join(steps[i] for i in chosen)})"


def _try(
    steps: Sequence[str],
    chosen: Sequence[int],
    part: Submodel,
    expected: Mapping[str, ModelValue],
    settings: TrialOptions,
) -> Trial:
    return try_submodel(part, expected, replace(settings, pipeline=_text(steps, chosen)))


def _works_without(
    steps: Sequence[str], dropped: set[int], part: Submodel, expected: Mapping[str, ModelValue], settings: TrialOptions
) -> bool:
    """Return whether compilation succeeds without these passes, with right or wrong results."""
    chosen = [i for i in range(len(steps)) if i not in dropped]
    return not _try(steps, chosen, part, expected, settings).failed


def _omit_passes(
    steps: Sequence[str],
    optional: Sequence[int],
    part: Submodel,
    expected: Mapping[str, ModelValue],
    settings: TrialOptions,
) -> set[int]:
    """Return as many optional passes as can be omitted together: some are needed if others are missing."""
    if _works_without(steps, set(optional), part, expected, settings):
        return set(optional)
    dropped: set[int] = set()
    for i in reversed(optional):
        if _works_without(steps, {*dropped, i}, part, expected, settings):
            dropped.add(i)
    return dropped
