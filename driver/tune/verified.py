"""Exact comparison of a kernel's schedule with its definition, before its choices are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.passes.exact.pipeline import can_be_verified, with_verification
from mirlo.passes.exact.verdict import DIFFERENT, KernelVerdict
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.runtime.errors import MirloError

if TYPE_CHECKING:
    from mirlo.runtime.params import ParameterStore


def is_verified(module: ir.Module, passes: str, store: ParameterStore) -> bool:
    """Return whether the kernels that these passes make of a module are equal to their definitions.

    Those that are not compared count as equal.
    """
    pipeline = Pipeline(passes)
    if not can_be_verified(pipeline):
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
