"""A resize to a size of the call computes the taps of each position once, not for each element there."""

from __future__ import annotations

import pytest

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.walk import walk
from mirlo.passes.pipeline import Pipeline

TEXT = """
!source = tensor<1x3x?x?xf32, #relax.dims<[1, 3, "h", "w"]>>
!result = tensor<1x3x?x?xf32, #relax.dims<[1, 3, "2*h", "2*w"]>>
func.func @main(%x: !source) -> !result {
  %0 = "relax.resize"(%x) {shape = [1, 3, "2*h", "2*w"], mode = "MODE"} : (!source) -> !result
  return %0 : !result
}"""


@pytest.mark.parametrize("mode", ("linear", "cubic"))
def test_taps_are_computed_by_position(mode: str) -> None:
    blocks: list[str] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "tir.block" and 'name = "interpolate"' in str(op):
            blocks.append(str(op))
        return ir.WalkResult.ADVANCE

    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(TEXT.replace("MODE", mode))
        Pipeline("legalize{target=llvm}").run(module)
        walk(module.operation, visit)
    assert len(blocks) == 2
    for computed_by_element in ("divf", "tir.floor"):
        assert not any(computed_by_element in block for block in blocks)
