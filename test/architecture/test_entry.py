"""The model is the function with the attribute `relax.entry`: nothing looks for it by its name or its place."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import ROOT

FOLDERS = ("dialects", "passes", "targets", "driver", "frontends", "tools")
NAMED = {
    "dialects/core/symbols.py": "defines the name that the model's function gets",
    "passes/schedule/primitives/command_intrin.py": "main memory",
    "passes/schedule/primitives/joined_threads.py": "main memory",
    "tools/bench/engines/tvm.py": "a function of TVM's virtual machine",
    "tools/fuzz/names.py": "a name to try",
    "tools/fuzz/structure_parts.py": "a name to try",
}
"""Files with the string "main", and what they mean by it."""
PLACED = {
    "frontends/script/printer.py": "the one function of a text that was just printed",
    "frontends/script/graph_values.py": "the one symbol of a text",
    "passes/exact/keep_definitions.py": "a nested module, by its attribute",
    "passes/schedule/primitives/rfactor.py": "the one prim function of a text",
    "targets/gpu/host_commands.py": "a function of a module of host functions, by its name",
    "targets/nvvm/ptx.py": "where functions are added",
    "tools/conformance/kernels.py": "the one prim function of a text",
}
"""Files that take a member of a module by its place, and which one."""


def names_of_the_entry(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield where a program holds the name of the model's function."""
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value == "main")


def places_in_modules(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield where a program takes a member of a module by its place, or the first that has some property."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=members, slice=ast.Constant(value=0)) if _are_members(members):
                yield node
            case ast.Call(func=ast.Name(id="next"), args=[ast.GeneratorExp(generators=[generator]), *_]):
                if _are_members(generator.iter):
                    yield node
            case ast.For(iter=members) if _are_members(members):
                yield from (inner for inner in ast.walk(node) if isinstance(inner, ast.Return) and inner.value)


def _are_members(node: ast.expr) -> bool:
    """Return whether an expression is the operations of a module: `module.body.operations`."""
    match node:
        case ast.Call(func=ast.Name(id="list" | "iter"), args=[inner]):
            return _are_members(inner)
        case ast.Attribute(attr="operations", value=ast.Attribute(attr="body")):
            return "terminator" not in ast.unparse(node)
        case ast.Attribute(attr="operations", value=ast.Subscript(value=ast.Attribute(attr="blocks", value=region))):
            return "module" in ast.unparse(region)
    return False


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize(("found", "allowed"), [(names_of_the_entry, NAMED), (places_in_modules, PLACED)])
def test_entry_is_an_attribute(
    folder: str, found: Callable[[ast.Module], Iterator[ast.AST]], allowed: dict[str, str]
) -> None:
    wrong = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name not in allowed:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            wrong += [f"{name}:{getattr(node, 'lineno', 0)}" for node in found(tree)]
    assert not wrong, f"the model's function is found by 'find_entry' of passes/entry.py: {wrong}"


def test_exceptions_are_needed() -> None:
    for found, allowed in ((names_of_the_entry, NAMED), (places_in_modules, PLACED)):
        for name in allowed:
            assert list(found(ast.parse(Path(ROOT, name).read_text(encoding="utf-8")))), name
