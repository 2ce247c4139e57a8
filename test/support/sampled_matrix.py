"""The matrix of a target from a sample of its cases, which tests compare with the page."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mirlo.tools.conformance.check import OK, Matrix, MatrixEntry, SupportVerdict, _worst, checks_of, names
from mirlo.tools.conformance.programs import ProgramOutcome, TestProgram, run


def sampled_matrix(target: str) -> Matrix:
    """Execute one element type of every second operator and intrinsic, another one each time; others count as right."""
    programs: list[TestProgram] = []
    judges: list[tuple[str, str, Callable[[ProgramOutcome], SupportVerdict]]] = []
    found: dict[str, dict[str, list[SupportVerdict]]] = {}
    with np.errstate(all="ignore"):
        for number, name in enumerate(names()):
            checks = list(checks_of(name))
            kinds = list(dict.fromkeys(kind for kind, _, _ in checks))
            found[name] = {kind: [] for kind in kinds}
            for kind, program, judge in checks:
                if number % 2 == 0 and kind == kinds[number // 2 % len(kinds)]:
                    programs.append(program)
                    judges.append((name, kind, judge))
        outcomes = run(programs, target, lambda done: None)
        for (name, kind, judge), outcome in zip(judges, outcomes, strict=True):
            found[name][kind].append(judge(outcome))
    entries = [
        MatrixEntry(
            name, {kind: _worst(verdicts) if verdicts else SupportVerdict(OK) for kind, verdicts in kinds.items()}
        )
        for name, kinds in found.items()
    ]
    return Matrix(target, tuple(entries))
