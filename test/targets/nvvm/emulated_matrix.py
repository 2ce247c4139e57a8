"""What target nvvm computes, operator by operator: executed from its PTX by the emulator, and written as a page.

python test/targets/nvvm/emulated_matrix.py > docs/support-matrix-nvvm.md        # all checks, for each chip
python test/targets/nvvm/emulated_matrix.py --chip sm_90a --operator relax.conv  # some, as text
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))

from emulator.driver import emulated

from mirlo.tools.conformance.check import (
    FAILED,
    OK,
    WRONG,
    Matrix,
    MatrixEntry,
    SupportVerdict,
    _checks,
    _worst,
    check_target,
    names,
)
from mirlo.tools.conformance.matrix import markdown, text_lines, totals
from mirlo.tools.conformance.programs import ProgramOutcome, TestProgram, run

CHIPS = ("sm_80", "sm_89", "sm_90a", "sm_100")
"""The page has the matrix of the first; the others' totals."""
_INTRODUCTION = """\
Written by `python test/targets/nvvm/emulated_matrix.py`; do not edit. **No GPU was used**: each cell is some cases
whose kernels were compiled to PTX for `{chip}`, executed by [the emulator](gpu.md#execution-without-a-gpu) behind the
loader's own calls of the driver, and compared with numpy: `ok`, `declined` (no rule takes it; the reason is below),
`WRONG`, `FAILED`. What NVIDIA's assembler and hardware make of the PTX is not seen.
An empty cell is an element type that the operator does not have, or that is not checked.

{totals}
"""


def sample(number: int, kinds: list[str]) -> str:
    """Return the element type that one operator of many is checked on by the tests."""
    return kinds[number % len(kinds)]


def sampled(chip: str) -> Matrix:
    """One element type of each operator and intrinsic executed, another one for the next; the others count as right."""
    programs: list[TestProgram] = []
    judges: list[tuple[str, str, Callable[[ProgramOutcome], SupportVerdict]]] = []
    found: dict[str, dict[str, list[SupportVerdict]]] = {}
    with np.errstate(all="ignore"):
        for number, name in enumerate(names()):
            checks = list(_checks(name))
            kinds = list(dict.fromkeys(kind for kind, _, _ in checks))
            found[name] = {kind: [] for kind in kinds}
            for kind, program, judge in checks:
                if kind == sample(number, kinds):
                    programs.append(program)
                    judges.append((name, kind, judge))
        with emulated(chip):
            outcomes = run(programs, f"nvvm{{chip={chip}}}", lambda done: None)
        for (name, kind, judge), outcome in zip(judges, outcomes, strict=True):
            found[name][kind].append(judge(outcome))
    entries = [
        MatrixEntry(
            name, {kind: _worst(verdicts) if verdicts else SupportVerdict(OK) for kind, verdicts in kinds.items()}
        )
        for name, kinds in found.items()
    ]
    return Matrix("nvvm", tuple(entries))


def executed(chip: str, only: Iterable[str] | None = None) -> Matrix:
    """All of them executed."""
    with emulated(chip):
        matrix = check_target(f"nvvm{{chip={chip}}}", only)
    return Matrix("nvvm", matrix.entries)


def page(matrix: Matrix, chips: Iterable[str], counts: Iterable[str]) -> str:
    """Return the page: the matrix of the first of these chips, and the totals of each."""
    lines = [f"- `{chip}`: {count}" for chip, count in zip(chips, counts, strict=True)]
    _, _, rest = markdown(matrix).partition("\n## ")
    first = next(iter(chips))
    return f"# What target `nvvm` computes\n\n{_INTRODUCTION.format(chip=first, totals=chr(10).join(lines))}\n## {rest}"


def counted(matrix: Matrix) -> str:
    """Return the totals in words."""
    return totals(matrix).removeprefix("nvvm: ") + "."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--chip", choices=CHIPS, help="check for this chip only, and print text")
    parser.add_argument("--operator", action="append", help="one operator or intrinsic: relax.conv, tir.exp")
    given = parser.parse_args()
    if given.chip or given.operator:
        matrices = [executed(given.chip or CHIPS[0], given.operator)]
        print("\n".join(text_lines(matrices[0])))
    else:
        matrices = [executed(chip) for chip in CHIPS]
        print(page(matrices[0], CHIPS, map(counted, matrices)), end="")
    return int(any(matrix.count(status) for matrix in matrices for status in (WRONG, FAILED)))


if __name__ == "__main__":
    raise SystemExit(main())
