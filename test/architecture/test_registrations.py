"""Test modules register nothing when they are imported: all later tests of the process would see it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
REGISTERING = {
    "define_intrinsic", "intrinsic", "legalize", "register_dialect", "register_pass", "register_target", "rewriter",
    "schedule",
}  # fmt: skip
"""Functions and decorators that change tables of the process."""
USED = re.compile(rf"\b(?:{'|'.join(sorted(REGISTERING))})\s*\(|@[\w.]*\b(?:{'|'.join(sorted(REGISTERING))})\b")
"""What the text of a module has that registers at all: most modules need not be parsed."""
LEFT = {
    "driver/place/test_choose.py",
    "passes/lower/test_own_intrinsics.py",
    "passes/schedule/test_tensorize.py",
    "passes/test_pipeline.py",
    "passes/test_pipeline_errors.py",
}
"""Modules that still do: most have prim functions and pipelines that name what they register. Add none."""


def _name(node: ast.expr) -> str:
    called = node.func if isinstance(node, ast.Call) else node
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def registers(text: str) -> bool:
    """Return whether a module calls, or decorates with, a function that registers when it is imported."""
    if not USED.search(text):
        return False
    for statement in ast.parse(text).body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            found = statement.decorator_list
        else:
            later = {
                id(node) for each in ast.walk(statement) if isinstance(each, ast.Lambda) for node in ast.walk(each)
            }
            found = [node for node in ast.walk(statement) if isinstance(node, ast.Call) and id(node) not in later]
        if any(_name(node) in REGISTERING for node in found):
            return True
    return False


def test_no_test_module_registers_when_it_is_imported() -> None:
    found = {
        path.relative_to(TESTS).as_posix()
        for path in TESTS.rglob("test_*.py")
        if "Inputs" not in path.parts and registers(path.read_text(encoding="utf-8"))
    }
    assert found == LEFT, "register in a fixture, within `mirlo.testing.temporary_registrations(__name__)`"


def test_what_registers_is_found() -> None:
    assert registers("DIALECT = register_dialect('own')")
    assert registers("@mirlo.extend.rules.legalize('relax.relu')\ndef rule(op, b): ...")
    assert not registers("def test():\n    register_target(target)")
