"""What a module imports by name when it runs exists when it runs: type checkers also know what is for them alone."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache

from commands import ROOT
from parsed_package import house


def _is_for_checkers(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module that run when it is imported; of functions and classes only themselves."""
    for node in body:
        if _is_for_checkers(node):
            assert isinstance(node, ast.If)
            yield from _statements(node.orelse)
            continue
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for part in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, part, ()))
            for handler in getattr(node, "handlers", ()):
                yield from _statements(handler.body)


@cache
def _defined(module: str) -> frozenset[str] | None:
    """Return the names that a module of Mirlo has after its import; None if it computes them, or is no such module."""
    path = ROOT / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if file not in house().texts:
        return None
    names = {each.stem for each in path.iterdir()} if path.is_dir() else set()
    for node in _statements(house().tree(file).body):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        else:
            names |= {
                each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            }
    return None if {"__getattr__", "*"} & names or _sets_globals(house().texts[file]) else frozenset(names)


def _sets_globals(text: str) -> bool:
    return "globals()" in text or "former_names(" in text


def _run_time_imports(tree: ast.AST) -> Iterator[ast.ImportFrom]:
    """Yield the imports by name that run, in functions as well."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt) and _is_for_checkers(node):
            continue
        if isinstance(node, ast.ImportFrom):
            yield node
        yield from _run_time_imports(node)


def test_names_that_are_imported_exist_at_run_time() -> None:
    missing = [
        f"{file.relative_to(ROOT)}:{node.lineno} {alias.name} of {node.module}"
        for file in house().paths
        for node in _run_time_imports(house().tree(file))
        if node.module is not None and node.module.startswith("mirlo.")
        for names in [_defined(node.module.removeprefix("mirlo."))]
        if names is not None
        for alias in node.names
        if alias.name != "*" and alias.name not in names
    ]
    assert not missing, f"names for type checkers only, or of no module: {', '.join(missing)}"


def test_a_name_for_type_checkers_is_not_defined() -> None:
    body = ast.parse("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a\nelse:\n    b = 1\n").body
    stored = [ast.unparse(node) for node in _statements(body)]
    assert stored == ["from typing import TYPE_CHECKING", "b = 1"]
