"""Exact comparison of a kernel's schedule with its definition, before its choices are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.passes.exact.pipeline import with_verification
from mirlo.passes.exact.verdict import DIFFERENT, KernelVerdict
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.passes.targets import thread_limits
from mirlo.runtime.errors import MirloError

if TYPE_CHECKING:
    from mirlo.runtime.params import ParameterStore


def is_verified(module: ir.Module, passes: str, store: ParameterStore, target: str) -> bool:
    """Return whether the kernels that these passes make of a module are equal to their definitions.

    Those that are not compared, such as kernels of GPUs, count as equal.
    """
    pipeline = Pipeline(passes)
    if thread_limits(target.partition("{")[0]) is not None or not {"schedule", "lower-loops"} <= set(pipeline.names()):
        return True
    steps = with_verification(pipeline, fail="never").steps
    names = [step.name for step in steps]
    if "verify-schedule" not in names:
        return True  # of a nested module
    session = Session(store, report=lambda severity, message, location: None)
    try:
        Pipeline(steps[: names.index("verify-schedule") + 1]).run(module, session)
    except MirloError:
        return False
    return not any(isinstance(note, KernelVerdict) and note.status == DIFFERENT for note in session.notes)
