"""Each sentence of SECURITY.md has a test or a command after it, or says what is trusted: `security_claims.txt`.

The file has the sentences in the order of the page, each followed by lines with its evidence: a test
(`test/x.py::test_y`), a file of lit, `mirlo fuzz MODE`, `make TARGET`, or `definition` for what nothing can test: who
is trusted, what is not promised, advice. A sentence that is written or changed needs a new look at its evidence.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from commands import ROOT

from mirlo.tools.fuzz.modes import MODES

CLAIMS = Path(__file__).with_name("security_claims.txt")
DEFINITION = "definition"


def sentences(page: str) -> Iterator[str]:
    """Yield the sentences of a page; a row of a table begins one."""
    paragraph: list[str] = []
    for line in [*page.splitlines(), ""]:
        is_row = line.startswith("|")
        if paragraph and (is_row or not line.strip() or line.startswith(("#", "<!--"))):
            yield from _split(" ".join(paragraph))
            paragraph.clear()
        if is_row:
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not all(re.fullmatch("-*", cell) for cell in cells):
                yield from _split(": ".join(cells))
        elif line.strip() and not line.startswith(("#", "<!--")):
            paragraph.append(line.strip())


def _split(text: str) -> list[str]:
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("**", "").strip()
    return re.split(r"(?<=[.?!])\s+(?=[A-Z*`m])", plain)


def claims(text: str) -> list[tuple[str, list[str]]]:
    """Return the sentences of the file with their evidence."""
    found: list[tuple[str, list[str]]] = []
    for line in filter(str.strip, text.splitlines()):
        if line.startswith("  "):
            found[-1][1].append(line.strip())
        elif not line.startswith("#"):
            found.append((line, []))
    return found


CLAIMED = claims(CLAIMS.read_text(encoding="utf-8"))


def test_each_sentence_has_evidence() -> None:
    page = list(sentences((ROOT / "SECURITY.md").read_text(encoding="utf-8")))[1:]  # after the head of the table
    listed = [sentence for sentence, _ in CLAIMED]
    missing, gone = [each for each in page if each not in listed], [each for each in listed if each not in page]
    assert not missing and not gone, "\n".join(
        [f"{CLAIMS.name}:", *(f"+ {each}" for each in missing), *(f"- {each}" for each in gone)]
    )
    assert listed == page
    assert all(evidence for _, evidence in CLAIMED)


@cache
def _tests_of(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@cache
def _targets() -> frozenset[str]:
    return frozenset(re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("evidence", sorted({each for _, listed in CLAIMED for each in listed}))
def test_evidence_exists(evidence: str) -> None:
    if evidence.startswith("make "):
        assert evidence.removeprefix("make ") in _targets()
    elif evidence.startswith("mirlo fuzz "):
        assert evidence.removeprefix("mirlo fuzz ") in MODES
    elif evidence != DEFINITION:
        path, _, test = evidence.partition("::")
        assert (ROOT / path).is_file()
        assert test in _tests_of(ROOT / path) if test else not path.endswith(".py")
