"""JavaScript of packages: a class of errors states its name, which programs read and consoles print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path
    for path in (*ROOT.glob("plugins/*/mirlo_*/**/*"), *ROOT.glob("tools/**/*"))
    if path.suffix in {".js", ".mjs", ".ts"} and not path.name.endswith(".d.ts") and "node_modules" not in path.parts
)
_CLASS = re.compile(r"class (\w+) extends \w*Error\b\s*{([^}]*)}")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_errors_state_their_names(path: Path) -> None:
    for name, body in _CLASS.findall(path.read_text(encoding="utf-8")):
        assert re.search(rf'^\s*name = "{name}";$', body, re.MULTILINE), f"{name} has no name of its own"


def test_there_are_classes_of_errors() -> None:
    found = [name for path in FILES for name, _ in _CLASS.findall(path.read_text(encoding="utf-8"))]
    assert found.count("ModelError") == 2
