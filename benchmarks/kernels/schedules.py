"""The common parts of benchmarks of schedules by loop primitives, on any target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mirlo
from mirlo.extend.schedules import ScheduleError
from mirlo.tools.explain.model import explain_model


def inline_into_last(s: Any) -> str:
    """Compute all blocks in the last one; return it."""
    for block in s.blocks()[:-1]:
        s.compute_inline(block)
    (last,) = s.blocks()
    return str(last)


def compute_rows(s: Any, row: str, blocks: list[str]) -> None:
    """Compute what an iteration of a loop of the last block reads in it, block by block."""
    for block in reversed(blocks[:-1]):
        s.compute_at(block, row)


def reduced_loops(s: Any, block: str) -> list[str]:
    """Return the loops of a block's reduction."""
    return [loop for loop, kind in s.kinds(block).items() if kind == "reduce"]


def element_loop(s: Any, block: str) -> str:
    """Return the loop over the elements of a row: those of the reduction as one, or the innermost loop."""
    reduced = reduced_loops(s, block)
    return str(s.fuse(*reduced) if len(reduced) > 1 else s.loops(block)[-1])


def kernel_of(path: Path, target: str, rules: tuple[str, ...]) -> tuple[str, str] | None:
    """Return the name and the rule of a model's only kernel; None if there are several, or another rule."""
    kernels = explain_model(str(path), target=target, tune=False).kernels
    scheduled = kernels[0].schedule
    if len(kernels) != 1 or scheduled is None or scheduled.rule.name not in rules:
        return None
    return kernels[0].name, scheduled.rule.name


def reason_of(error: mirlo.MirloError) -> str:
    """Return why a schedule does not apply."""
    cause = error.__cause__ if isinstance(error.__cause__, ScheduleError) else error
    return str(cause).splitlines()[0]
