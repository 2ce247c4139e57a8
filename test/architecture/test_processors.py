"""Tests of code name a processor; only tests of numbers run code compiled for the host's."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import ROOT

OF_THE_HOST = re.compile(r"\bhost_machine\(|import .*\bhost_machine\b|\.host_machine\"")
EXCEPT = {
    "targets/llvm/test_rates.py": "rates are of the host's processor",
}
EXPLAINED = {"explain_model", "explain"}
CODE = {"choices", "cycles", "tile", "flops_per_cycle"}
"""What an explanation has of a kernel that is another for each processor."""


def test_no_test_asks_for_the_machine_of_the_host() -> None:
    found = {
        path.relative_to(ROOT / "test").as_posix()
        for path in (ROOT / "test").rglob("*.py")
        if path != Path(__file__) and OF_THE_HOST.search(path.read_text(encoding="utf-8"))
    }
    assert found == set(EXCEPT), "a test of code names a processor: test/support/presets.py"


def test_explanations_whose_code_is_looked_at_are_for_a_named_processor() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{function.lineno} {function.name}"
        for path in (ROOT / "test").rglob("test_*.py")
        if any(name in (text := path.read_text(encoding="utf-8")) for name in EXPLAINED)
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.FunctionDef) and function.name.startswith("test_")
        if any(_explains_for_the_host(function)) and CODE & _attributes(function)
    ]
    assert not found, "an explanation without `target` is that of this machine's processor: name one"


def test_commands_of_lit_whose_code_is_looked_at_name_a_processor() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line}"
        for suffix in ("mlir", "test")
        for path in (ROOT / "test").rglob(f"*.{suffix}")
        for line in re.findall(r"RUN: (.*)", path.read_text(encoding="utf-8", errors="replace"))
        if _is_code_of_the_host(line)
    ]
    assert not found, "name a processor: `--target 'llvm{cpu=znver4}'`, or `schedule{machine=avx512}`"


@pytest.mark.parametrize(
    ("line", "of_the_host"),
    [
        ("mirlo explain %s --precision bf16 | FileCheck %s", True),
        ("mirlo explain %s --kernel f --target 'llvm{threads=2}' | FileCheck %s", True),
        ("mirlo explain %s --kernel f --target 'llvm{cpu=znver4}' | FileCheck %s", False),
        ("mirlo-opt %s --pass-pipeline='builtin.module(legalize,schedule)' | FileCheck %s", True),
        ("mirlo-opt %s --pass-pipeline='builtin.module(legalize,schedule{explain=true})' | FileCheck %s", True),
        ("mirlo-opt %s --pass-pipeline='builtin.module(legalize,schedule{machine=avx512})' | FileCheck %s", False),
        ("mirlo-opt %s --pass-pipeline='builtin.module(legalize,schedule{target=spirv})' | FileCheck %s", False),
        ("not mirlo explain relax.matmul --precision bf16 2>&1 | FileCheck %s", False),
    ],
)
def test_a_command_without_a_processor_is_found(line: str, of_the_host: bool) -> None:
    assert _is_code_of_the_host(line) is of_the_host


def _is_code_of_the_host(line: str) -> bool:
    """Return whether a command of lit checks code that depends on the processor, and names none."""
    if line.startswith("not "):
        return False
    if "mirlo explain %s" in line and re.search(r"--(kernel|precision)\b", line):
        return not re.search(r"\bcpu=", line)
    return any(
        not re.search(r"\b(machine|target)=", options)
        for options in re.findall(r"[(,]schedule\b((?:\{[^}]*\})?)", line)
    )


def _explains_for_the_host(function: ast.FunctionDef) -> Iterator[ast.Call]:
    """Yield the calls in a test that explain a model for target `llvm` without options."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in EXPLAINED:
            names = {keyword.arg for keyword in node.keywords}
            if len(node.args) < 2 and not names & {"target", None}:
                yield node


def _attributes(function: ast.FunctionDef) -> set[str]:
    return {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
