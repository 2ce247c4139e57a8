"""What target nvvm computes, operator by operator: executed from its PTX by the emulator, and written as a page.

python test/targets/nvvm/emulated_matrix.py > docs/support-matrix-nvvm.md        # all checks, for each chip
python test/targets/nvvm/emulated_matrix.py --chip sm_90a --operator relax.conv  # some, as text
python test/targets/nvvm/emulated_matrix.py --new                                # what the page lacks, added to it
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "support")]

from sampled_matrix import sampled_matrix

from mirlo.testing.ptx.driver import emulated
from mirlo.tools.conformance.check import (
    FAILED,
    WRONG,
    Matrix,
    MatrixEntry,
    check_target,
    names,
)
from mirlo.tools.conformance.matrix import MARKS, markdown, text_lines, totals

PAGE = Path(__file__).resolve().parents[3] / "docs" / "support-matrix-nvvm.md"
ROW = r"^(\| `([\w.]+)` \|.*)$"
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
    """Return all of them, executed."""
    with emulated(chip):
        matrix = check_target(f"nvvm{{chip={chip}}}", only)
    return Matrix("nvvm", matrix.entries)


def page(matrix: Matrix, chips: Iterable[str], counts: Iterable[str]) -> str:
    """Return the page: the matrix of the first of these chips, and the totals of each."""
    lines = [f"- `{chip}`: {count}" for chip, count in zip(chips, counts, strict=True)]
    _, _, rest = markdown(matrix).partition("\n## ")
    first = next(iter(chips))
    return f"# What target `nvvm` computes\n\n{_INTRODUCTION.format(chip=first, totals=chr(10).join(lines))}\n## {rest}"


def with_rows(text: str, matrices: Sequence[Matrix]) -> str:
    """Return the page with the operators of these matrices, one for each chip: rows of the first, and all totals."""
    order = {name: number for number, name in enumerate(names())}
    parts = re.split(r"(?=^## )", text, flags=re.MULTILINE)
    for number, part in enumerate(parts):
        rows = {name: row for row, name in re.findall(ROW, part, re.MULTILINE)}
        (kinds,) = re.findall(r"^\| \| (.*) \|$", part, re.MULTILINE) or [""]
        domain = next(iter(rows), "").partition(".")[0]
        more = {
            entry.name: " | ".join(["", f"`{entry.name}`", *(_mark(entry, kind) for kind in kinds.split(" | ")), ""])
            for entry in matrices[0].entries
            if entry.name.partition(".")[0] == domain
        }
        lines = [row.strip() for _, row in sorted((rows | more).items(), key=lambda each: order[each[0]])]
        parts[number] = part.replace("\n".join(rows.values()), "\n".join(lines)) if rows else part
    found = "".join(parts)
    for chip, matrix in zip(CHIPS, matrices, strict=True):
        (line,) = re.findall(rf"^- `{chip}`: (.*)$", found, re.MULTILINE)
        pairs = (re.findall(r"\d+", each) for each in (line, counted(matrix)))
        counts = [int(a) + int(b) for a, b in zip(*pairs, strict=True)]
        total = re.sub(r"\d+", "{}", line).format(*counts)
        found = found.replace(f"- `{chip}`: {line}", f"- `{chip}`: {total}")
    return found


def _mark(entry: MatrixEntry, kind: str) -> str:
    verdict = entry.verdicts.get(kind)
    return MARKS[verdict.status] if verdict is not None else ""


def counted(matrix: Matrix) -> str:
    """Return the totals in words."""
    return totals(matrix).removeprefix("nvvm: ") + "."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--chip", choices=CHIPS, help="check for this chip only, and print text")
    parser.add_argument("--operator", action="append", help="one operator or intrinsic: relax.conv, tir.exp")
    parser.add_argument("--new", action="store_true", help="check operators that the page lacks, and add them to it")
    given = parser.parse_args()
    if given.new:
        text = PAGE.read_text(encoding="utf-8")
        lacking = [name for name in names() if f"| `{name}` |" not in text]
        matrices = [executed(chip, lacking) for chip in CHIPS]
        print("\n".join(text_lines(matrices[0])))
        PAGE.write_text(with_rows(text, matrices), encoding="utf-8")
    elif given.chip or given.operator:
        matrices = [executed(given.chip or CHIPS[0], given.operator)]
        print("\n".join(text_lines(matrices[0])))
    else:
        matrices = [executed(chip) for chip in CHIPS]
        print(page(matrices[0], CHIPS, map(counted, matrices)), end="")
    return int(any(matrix.count(status) for matrix in matrices for status in (WRONG, FAILED)))


if __name__ == "__main__":
    raise SystemExit(main())
