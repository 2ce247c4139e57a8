"""The comparison of kernels with their definitions as steps of a pipeline; nothing here compares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.passes.options import quote
from mirlo.passes.registry import PassError

if TYPE_CHECKING:
    from mirlo.passes.pipeline import Pipeline


SCHEDULING = ("schedule", "lower-loops")
"""The first and the last pass between the two forms of a kernel."""


def can_be_verified(pipeline: Pipeline) -> bool:
    """Return whether a pipeline has both forms of kernels."""
    return set(SCHEDULING) <= set(pipeline.names())


def with_verification(pipeline: Pipeline, **options: object) -> Pipeline:
    """Add the comparison of kernels with their definitions to a pipeline; return it.

    `options` are those of `verify-schedule`.
    """
    if "verify-schedule" in pipeline:
        return pipeline  # of a stage that was saved with it
    missing = [name for name in SCHEDULING if name not in pipeline]
    if missing:
        raise PassError(
            f"kernels are compared with their definitions between 'schedule' and 'lower-intrinsics', but there is no "
            f"pass '{missing[0]}' in '{pipeline}'"
        )
    steps = list(pipeline.steps)
    first, last = (pipeline.names().index(name) for name in SCHEDULING)
    described = {**options, "steps": ",".join(map(str, steps[first : last + 1]))}
    text = " ".join(f"{name}={quote(str(value))}" for name, value in described.items() if value != "")
    pipeline.insert_before("schedule", "keep-definitions")
    return pipeline.insert_after("lower-loops", f"verify-schedule{{{text}}}" if text else "verify-schedule")
