"""Kernels as they are after the pass `schedule`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import prim_functions
from mirlo.driver.models import open_model
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.schedule.schedule import SCHEDULES, ScheduleRecord, check_given
from mirlo.passes.schedule.tuned import TUNED
from mirlo.passes.targets import CompileOptions, find_target

FACTS = ("tir.schedule", "tir.choices", "tir.applied", "tir.parts")


def scheduled(model: object, given: Mapping[str, Any], target: str) -> tuple[str, list[ScheduleRecord]]:
    """Return a model after the pass `schedule`, and how each function was scheduled."""
    chosen = find_target(target)
    steps = [str(step) for step in Pipeline(chosen.pipeline(CompileOptions(target)))]
    end = next(i for i, step in enumerate(steps) if step.startswith("schedule"))
    opened = open_model(model)
    module, session = opened.module, opened.session
    session.options[SCHEDULES] = dict(given)
    with module.context, ir.Location.unknown():
        Pipeline(f"builtin.module({','.join(steps[: end + 1])})").run(module, session)
        check_given(session)
        for function in prim_functions(module.operation):
            # The records say how a function was scheduled; a given trace is another rule than the one that printed it.
            for name in (TUNED, *FACTS):
                if name in function.operation.attributes:
                    del function.operation.attributes[name]
        records = [note for note in session.notes if isinstance(note, ScheduleRecord)]
        # Whether blocks share a constant depends on what emitted the function before; it computes the same.
        Pipeline("builtin.module(cse)").run(module, session)
        return module.operation.get_asm(large_elements_limit=16), records
