"""The constants of the cost model are in one file, each with its meaning."""

from __future__ import annotations

import ast

from commands import ROOT

FOLDER = ROOT / "targets" / "llvm" / "schedule"
OTHERS = {
    "NEVER": "no number of rows is enough",
    "PANELS": "a value of a choice",
    "ROWS": "likewise",
    "BOTH": "likewise",
    "LARGEST_PAIR": "bits of an i16, over the largest u8",
}
"""Numbers that are no costs."""


def _constants(source: str) -> list[tuple[str, bool]]:
    """Return the names of a file's constants that are numbers, and whether a docstring follows each."""
    body = ast.parse(source).body
    constants = []
    for node, following in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.Assign) or any(isinstance(n, ast.Call) for n in ast.walk(node.value)):
            continue
        values = [n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)]
        has_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        if values and all(isinstance(value, (int, float)) for value in values):
            names = [n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)]
            constants += [(name, has_text) for name in names if name.isupper()]
    return constants


def test_each_constant_says_what_it_means() -> None:
    constants = _constants((FOLDER / "cost.py").read_text())
    assert len(constants) > 50 and [name for name, has_text in constants if not has_text] == []


def test_no_other_file_has_constants_of_its_own() -> None:
    others = [path for path in FOLDER.rglob("*.py") if path.name != "cost.py"]
    names = {name for path in others for name, _ in _constants(path.read_text())}
    assert names == set(OTHERS)
