"""Code of the intrinsics that Mirlo's rules call is made in this process; of those of others, in a fork."""

from __future__ import annotations

import ast

import pytest
from commands import ROOT

from mirlo.dialects.bindings import ir, new_context
from mirlo.targets.llvm_guard import suspects_in, suspects_in_text

CALLED = sorted(
    {
        node.value.replace("{bits}", bits)
        for path in (ROOT / "targets" / "llvm").rglob("*.py")
        if '"llvm.' in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if node.value.startswith(("llvm.x86.", "llvm.aarch64.")) and not node.value.endswith(".")
        for bits in ("128", "256", "512")
    }
)
"""The intrinsics that rules name in full."""


def test_there_are_some() -> None:
    assert {"llvm.x86.avx512.vpdpbusd.512", "llvm.aarch64.neon.sdot.v4i32.v16i8"} <= set(CALLED)


@pytest.mark.parametrize("name", CALLED)
def test_rules_call_what_llvm_knows(name: str) -> None:
    with new_context():
        assert suspects_in_text(f'llvm.call_intrinsic "{name}"() : () -> ()') == set()


@pytest.mark.parametrize("name", [*CALLED[:2], "llvm.x86.no.such"])
def test_devices_do_not_know_them(name: str) -> None:
    """A GPU's back end ends the process on an intrinsic of a CPU, whichever it is."""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(f'llvm.func @f() {{ llvm.call_intrinsic "{name}"() : () -> ()\n llvm.return }}')
        assert suspects_in(module.operation) == {name}
