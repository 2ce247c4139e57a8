"""The names that the package exports, and how tools that do not run code find them."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from fnmatch import filter as matching
from pathlib import Path

import pytest
from commands import ROOT, output_of, python
from parsed_package import house

import mirlo
from mirlo.benchmarks.features import FEATURES, new_features

VAGUE = {"made", "given", "found", "said"}
"""Names that say where a value comes from, not what it is: a kernel, operands, a match, the declared type."""
_NAME = rf"\b({'|'.join(sorted(VAGUE))})\b"
MAY_BIND = re.compile(rf"{_NAME}\s*([-=:,)\]+*/|&%@^<>]|in\b|if\b)|\b(as|lambda)\s+\*?{_NAME}")
"""What a text has that binds one of them, and some texts that do not: not all files are parsed."""


def test_types_of_lazy_names_are_those_that_are_imported() -> None:
    """What a type checker sees of `mirlo` is what `__getattr__` imports."""
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.asname: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert seen == mirlo._LAZY


def test_the_version_is_that_of_the_distribution() -> None:
    assert mirlo.__version__ and "__version__" in dir(mirlo)
    with pytest.raises(AttributeError, match="no attribute 'versions'"):
        _ = mirlo.versions  # type: ignore[attr-defined]


@pytest.mark.skipif(sys.platform == "win32", reason="git makes links on Windows only where that is switched on")
def test_the_package_is_found_by_name_in_a_clone() -> None:
    """`src` on the path is all that a type checker, an editor or a documentation tool needs."""
    assert (ROOT / "src" / "mirlo").resolve() == ROOT
    script = "import sys; sys.path.insert(0, 'src'); from importlib.machinery import PathFinder as P\n"
    found = output_of(python("-c", script + "print(P.find_spec('mirlo', ['src']).origin)", cwd=ROOT)).strip()
    assert Path(ROOT / found).resolve() == ROOT / "__init__.py"


def test_class_names_are_used_once() -> None:
    assert house().repeated_class_names == {}


def test_figures_tell_files_of_new_features() -> None:
    """Each pattern of the table matches a file; files of a feature that the other revision has are not new."""
    names = house().names
    assert [p for patterns in FEATURES.values() for p in patterns.split() if not matching(names, p)] == []
    old = [name for name in names if name != "frontends/tensor.py"]
    assert new_features(names, names) == {} and "PyTorch" not in new_features(names, old)
    assert "frontends/files.py" in new_features(names, ["passes/rules.py"])["TOSA and TensorFlow Lite"]


def _vague_bindings(tree: ast.Module) -> Iterator[str]:
    """Yield the line and the name of each parameter and local with a vague name; fields of classes are attributes."""
    fields = {
        id(item.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for item in node.body
        if isinstance(item, ast.AnnAssign)
    }
    for node in ast.walk(tree):
        name: str | None = None
        if isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in fields:
            name = node.id
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
            name = node.name
        if name in VAGUE:
            yield f"{node.lineno} {name}"


def test_locals_say_what_they_hold() -> None:
    """No local or parameter is called `made`, `given`, `found` or `said`."""
    scripts = [path for folder in ("benchmarks", "examples", "release") for path in (ROOT / folder).rglob("*.py")]
    texts = house().texts | {path: path.read_text(encoding="utf-8") for path in [*scripts, *ROOT.glob("*.py")]}
    vague = [
        f"{path.relative_to(ROOT).as_posix()}:{binding}"
        for path, text in texts.items()
        if MAY_BIND.search(text)
        for binding in _vague_bindings(ast.parse(text))
    ]
    assert not vague, f"name what these hold, with a noun of the field: {', '.join(vague)}"


BINDINGS = (
    ("", " = 1"), ("", ": int = 1"), ("def f(*", "): ..."), ("lambda", ": 1"), ("except E as", ":"), ("for", " in x:"),
    ("with a as", ":"), ("a,", " = b"), ("[", ", b] = c"), ("(", ":= 1)"), ("def f(a,", "=1): ..."), ("", " += 1"),
)  # fmt: skip


def test_vague_locals_are_found() -> None:
    text = """
def f(given, *made):
    for found in given:
        said = self.found = made
    try:
        return lambda found: f(found=said)
    except E as said:
        pass


class C:
    made: int
"""
    assert MAY_BIND.search(text) and all(MAY_BIND.search(f"{before} given{after}") for before, after in BINDINGS)
    assert sorted(_vague_bindings(ast.parse(text))) == ["2 given", "2 made", "3 found", "4 said", "6 found", "7 said"]
