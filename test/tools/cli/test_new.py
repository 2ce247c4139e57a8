"""`mirlo new`: packages whose tests pass, and which stay small."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from commands import run_script

from mirlo.tools.cli import main
from mirlo.tools.new import KINDS, NewPackageError, write_package


def statements(text: str) -> int:
    """Return the lines of code of a module: no blank lines, comments or docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            body[0] = ast.Pass()
    return sum(line.strip() not in ("", "pass") for line in ast.unparse(tree).splitlines())


def definition(text: str, name: str) -> str:
    node = next(n for n in ast.parse(text).body if getattr(n, "name", "") == name)
    return ast.unparse(node)


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", KINDS)
def test_its_tests_pass(kind: str, tmp_path: Path, whole: bool) -> None:
    """Pass the tests of a package; without the cases of `check-target`, which its own tests run, if not whole."""
    assert main(["new", kind, "own_thing", "--into", str(tmp_path)]) == 0
    folder = tmp_path / "own_thing"
    chosen = [] if whole else ["-k", "not conformance"]
    for command in (["pytest", "-q", "-p", "no:cacheprovider", *chosen], ["lit.main", "-v", "tests"]):
        done = run_script("-m", *command, cwd=folder, site=[folder])
        assert done.returncode == 0, done.stdout + done.stderr


def test_sizes() -> None:
    """An operator takes 16 lines, a legalization 10, an intrinsic 5, a code generator 100, a target 180 with tests.

    Three of the operator's are its names in ONNX, ATen and StableHLO.
    """
    target = KINDS["target"]("own")
    assert statements(definition(KINDS["operator"]("own")["own.py"], "Own")) <= 16
    assert statements(definition(target["own/__init__.py"], "matmul")) <= 10
    assert statements(definition(target["own/__init__.py"], "rsqrt")) <= 5
    code = [text for path, text in target.items() if not path.endswith((".c", ".md"))]
    assert sum(len(text.splitlines()) for text in code) <= 180
    assert len(KINDS["codegen"]("own")["own/__init__.py"].splitlines()) <= 100


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(NewPackageError, match="'My-Target' is not a name for a package: expected small letters"):
        write_package("target", "My-Target", tmp_path)
    (tmp_path / "own").mkdir()
    with pytest.raises(NewPackageError, match="own' exists already: choose another name"):
        write_package("pass", "own", tmp_path)
