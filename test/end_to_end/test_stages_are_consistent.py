"""After every step of a target's pipeline, calls fit their functions and every fact is a known one."""

from __future__ import annotations

from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.instrumentation import Instrument
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.passes.targets import CompileOptions, find_target
from mirlo.passes.verify_calls import VerifyCalls

GRAPH = """
func.func @main(%x: tensor<2x3x16x16xf32> {relax.name = "x"}, %mask: tensor<2x1x1xi1> {relax.name = "mask"})
    -> (tensor<2x8x8xf32> {relax.name = "y"}) {
  %w = "relax.constant"() {value = dense<0.1> : tensor<8x3x3x3xf32>} : () -> tensor<8x3x3x3xf32>
  %0 = "relax.conv"(%x, %w) {operandSegmentSizes = array<i32: 1, 1, 0>, padding = array<i64: 1, 1, 1, 1>,
      strides = array<i64: 2, 2>} : (tensor<2x3x16x16xf32>, tensor<8x3x3x3xf32>) -> tensor<2x8x8x8xf32>
  %1 = "relax.relu"(%0) : (tensor<2x8x8x8xf32>) -> tensor<2x8x8x8xf32>
  %2 = "relax.reduce_mean"(%1) {axes = array<i64: 3>} : (tensor<2x8x8x8xf32>) -> tensor<2x8x8xf32>
  %3 = "relax.softmax"(%2) : (tensor<2x8x8xf32>) -> tensor<2x8x8xf32>
  %4 = "relax.where"(%mask, %3, %2) : (tensor<2x1x1xi1>, tensor<2x8x8xf32>, tensor<2x8x8xf32>) -> tensor<2x8x8xf32>
  return %4 : tensor<2x8x8xf32>
}
"""


class _Checked(Instrument):
    """Runs `verify-calls` after each pass."""

    def __init__(self, session: Session):
        self.session = session
        self.passes: list[str] = []

    def after_pass(self, step: Any, op: Any) -> None:
        if op.operation.name == "builtin.module":
            VerifyCalls().run(op, self.session)
            self.passes.append(step.name)


def test_calls_fit_after_every_pass() -> None:
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(GRAPH)
        session = Session()
        session.options["legalize"] = {}
        checked = _Checked(session)
        Pipeline(find_target("llvm").pipeline(CompileOptions("llvm", 1, 3))).run(module, session, [checked])
        assert "legalize" in checked.passes and "plan-memory" in checked.passes
