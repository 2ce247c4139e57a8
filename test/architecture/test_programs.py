"""Mistakes that only show when a statement runs, in programs and packages that no test runs whole."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import ROOT

FOLDERS = (
    "benchmarks", "dialects", "docs", "driver", "examples", "extend", "frontends", "passes", "plugins", "release",
    "runtime", "targets", "testing", "tools",
)  # fmt: skip
CHECK = re.compile(r"\bisinstance\(([\w.]+),")


def _sources(*words: str) -> Iterator[tuple[Path, str]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if all(word in text for word in words):
                yield path, text


def swapped_checks(text: str) -> Iterator[str]:
    """Yield the calls of `isinstance` whose first argument is a class, by its name."""
    for match in CHECK.finditer(text):
        name = match[1].rpartition(".")[2]
        is_builtin = name == match[1] and isinstance(getattr(builtins, name, None), type)
        if is_builtin or name.lstrip("_")[:1].isupper():
            yield f"isinstance({match[1]}, ...)"


def undeclared_options(text: str) -> set[str]:
    """Return the options that a program reads and does not declare."""
    tree = ast.parse(text)
    declared: set[str] = set()
    parsed: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _called(node.value) == "parse_args":
            names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
            parsed |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
        method = _called(node)
        if method in ("add_argument", "add_subparsers") and isinstance(node, ast.Call):
            named = [each.value for each in node.keywords if each.arg == "dest"]
            flags = [each.value for each in [*named, *node.args] if isinstance(each, ast.Constant)]
            long = [flag for flag in flags if named or flag.startswith("--")] or flags
            declared.add(long[0].lstrip("-").replace("-", "_"))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in parsed
    } - declared  # fmt: skip


def _called(node: ast.AST) -> str:
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""


def test_the_class_is_the_second_argument_of_a_check() -> None:
    sources = _sources("isinstance(")
    swapped = [f"{path.relative_to(ROOT)}:{call}" for path, text in sources for call in swapped_checks(text)]
    assert not swapped, swapped


def test_each_option_that_a_program_reads_is_declared() -> None:
    programs = {
        path.relative_to(ROOT).as_posix(): undeclared_options(text)
        for path, text in _sources("ArgumentParser(", "add_argument(", "parse_args(")
    }
    assert len(programs) > 20 and not any(programs.values()), {name: each for name, each in programs.items() if each}


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("isinstance(x, int)", []), ("isinstance(int, x)", ["isinstance(int, ...)"]),
        ("isinstance(a.Tensor, x)", ["isinstance(a.Tensor, ...)"]), ("isinstance(_A, B)", ["isinstance(_A, ...)"]),
        ("isinstance(a.x, A)", []),
    ],
)  # fmt: skip
def test_swapped_arguments_are_found(text: str, calls: list[str]) -> None:
    assert list(swapped_checks(text)) == calls


@pytest.mark.parametrize(
    ("options", "undeclared"),
    [
        ('p.add_argument("--a-b", "-c")', {"c"}), ('p.add_argument("c")', {"a_b"}),
        ('p.add_argument("-x", dest="c")\np.add_argument("--a-b")', set()), ("p.add_argument", {"a_b", "c"}),
    ],
)  # fmt: skip
def test_options_that_are_not_declared_are_found(options: str, undeclared: set[str]) -> None:
    text = f"p = ArgumentParser()\n{options}\noptions = p.parse_args()\nprint(options.a_b, options.c, p.other)"
    assert undeclared_options(text) == undeclared
