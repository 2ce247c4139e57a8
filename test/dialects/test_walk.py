"""Exceptions in callbacks of MLIR reach the caller unchanged."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from mirlo.dialects.bindings import ir, new_context
from mirlo.dialects.context import make_context
from mirlo.dialects.core.walk import diagnostics_to, find_named, walk

TEXT = """
func.func @f(%n: index) {
  %c = arith.constant 0 : index
  scf.for %i = %c to %n step %n { %d = arith.addi %i, %n : index }
  return
}
"""
ORDERS = (ir.WalkOrder.PRE_ORDER, ir.WalkOrder.POST_ORDER)


@pytest.fixture
def module() -> Any:
    with new_context(), ir.Location.unknown():
        yield ir.Module.parse(TEXT)


class Stopped(BaseException):
    """Raised by a handler of a signal."""


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", [KeyboardInterrupt, Stopped, SystemExit, ValueError, RuntimeError, ir.MLIRError])
def test_what_a_visit_raises_is_kept(kind: type[BaseException], order: ir.WalkOrder, module: ir.Module) -> None:
    names: list[str] = []
    walk(module, lambda op: [names.append(op.name), ir.WalkResult.ADVANCE][1], order)  # type: ignore[func-returns-value]
    assert sorted(names) == sorted(
        ["builtin.module", "func.func", "arith.constant", "scf.for", "arith.addi", "scf.yield", "func.return"]
    )
    for name in names:
        error = kind(name) if kind is not ir.MLIRError else kind(name, [])

        def visit(op: ir.Operation, name: str = name, error: BaseException = error) -> ir.WalkResult:
            if op.name == name:
                raise error
            return ir.WalkResult.ADVANCE

        with pytest.raises(kind) as raised:
            walk(module, visit, order)
        assert raised.value is error


def test_an_interrupt_before_the_first_statement_of_a_callback(module: ir.Module) -> None:
    """A signal's handler runs when a function begins, where it cannot catch anything yet."""

    def trace(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name == "guarded":
            raise KeyboardInterrupt

    def run(begin: Any) -> None:
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            begin()
        finally:
            sys.settrace(before)

    with pytest.raises(KeyboardInterrupt):
        run(lambda: walk(module, lambda op: ir.WalkResult.ADVANCE))

    def diagnose() -> None:
        with diagnostics_to(module.context, lambda diagnostic: True):
            ir.Location.unknown(module.context).emit_error("text")

    with pytest.raises(KeyboardInterrupt):
        run(diagnose)


def test_what_a_handler_of_diagnostics_raises_is_kept(module: ir.Module) -> None:
    def handle(diagnostic: ir.Diagnostic) -> bool:
        raise Stopped(diagnostic.message)

    with pytest.raises(Stopped, match="text"), diagnostics_to(module.context, handle):
        ir.Location.unknown(module.context).emit_error("text")


BLOCKS = """
module {
  func.func @f(%n: index, %x: f32) {
    scf.for %i = %n to %n step %n {
      %0 = math.exp %x : f32
      scf.for %j = %n to %n step %n { %1 = math.exp %x : f32 }
      %2 = math.sqrt %x : f32
    }
    return
  }
  module { func.func @g(%x: f32) { %0 = math.exp %x : f32 return } }
  func.func private @empty()
}
"""
UNREACHED = """
func.func @f(%x: f32) {
  %0 = math.exp %x : f32
  return
^unreached:
  %1 = math.exp %x : f32
  return
}
"""


@pytest.mark.parametrize("text", [BLOCKS, UNREACHED, TEXT, "module {}"])
@pytest.mark.parametrize("names", [["math.exp"], ["scf.for", "math.sqrt"], ["math.exp", "scf.for"], ["tir.size"], []])
def test_operations_of_names_are_those_of_a_walk(text: str, names: list[str]) -> None:
    with make_context(), ir.Location.unknown():
        root = ir.Module.parse(text).operation
        expected: list[ir.Operation] = []
        walk(root, lambda op: [op.name in names and expected.append(op), ir.WalkResult.ADVANCE][1])
        before = str(root)
        assert find_named(root, names) == expected
        assert str(root) == before
