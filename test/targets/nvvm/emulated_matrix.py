"""What target nvvm computes, operator by operator: executed from its PTX by the emulator, and written as a page.

python test/targets/nvvm/emulated_matrix.py > docs/support-matrix-nvvm.md        # all checks, for each chip
python test/targets/nvvm/emulated_matrix.py --chip sm_90a --operator relax.conv  # some, as text
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "support")]

from emulator.driver import emulated
from sampled_matrix import sampled_matrix

from mirlo.tools.conformance.check import (
    FAILED,
    WRONG,
    Matrix,
    check_target,
)
from mirlo.tools.conformance.matrix import markdown, text_lines, totals

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


def sampled(chip: str) -> Matrix:
    """Execute a sample on an emulated GPU."""
    with emulated(chip):
        matrix = sampled_matrix(f"nvvm{{chip={chip}}}")
    return Matrix("nvvm", matrix.entries)


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
