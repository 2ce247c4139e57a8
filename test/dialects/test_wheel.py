"""What depends on the version of MLIR's bindings: builds that lack something, and what makes up for it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mirlo.dialects import wheel
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.locations import find_source_position
from mirlo.dialects.core.surgery import captured

CAPTURE = """
func.func @reads_what_is_outside(%x: tensor<8x4xf32>, %y: f32) {
  %r = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32):
    %0 = arith.addf %a, %y : f32
    "tir.yield"(%0) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial"], domain = [8, 4], init = [unit], name = "exp",
      maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
      resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}
"""


def test_this_build_has_what_is_needed() -> None:
    assert wheel.lacks(ir) == []
    assert wheel.lacks(SimpleNamespace(DynamicOpTrait=1, FusedLoc=1))[0].startswith("MemoryEffectsOpInterface (")
    assert wheel.installed() is not None


def test_dialects_are_found_without_a_function_for_it() -> None:
    context = make_context()
    names = ("relax.exp", "relax.log")
    older = SimpleNamespace(is_registered_operation=context.is_registered_operation)
    for each in (context, older):
        assert wheel.is_dialect_loaded(each, "relax", names)
        assert not wheel.is_dialect_loaded(each, "npu", ("npu.conv",))


def test_constants_return_into_isolated_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel, "_ISOLATED", {"test.isolated"})
    text = """
    func.func @f(%x: f32) -> f32 {
      %c = arith.constant 2.0 : f32
      %0 = "test.isolated"(%x) ({
      ^bb0(%a: f32):
        %p = arith.mulf %a, %c : f32
        %q = arith.addf %p, %c : f32
        "test.yield"(%q) : (f32) -> ()
      }) : (f32) -> f32
      return %0 : f32
    }"""
    with make_context(allow_unregistered=True), ir.Location.unknown():
        module = ir.Module.parse(text)
        wheel.restore_isolation(ir, module.operation)
        function = module.body.operations[0]
        (isolated,) = [op for op in function.regions[0].blocks[0].operations if op.operation.name == "test.isolated"]
        assert list(captured(isolated)) == []
        names = [op.operation.name for op in isolated.regions[0].blocks[0].operations]
        assert names == ["arith.constant", "arith.mulf", "arith.addf", "test.yield"]
        assert module.operation.verify()


@pytest.mark.parametrize("declared", [True, False])
def test_a_block_that_reads_what_is_outside_is_refused(declared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build with the trait adds a note to the error, which Python cannot; without it, Mirlo looks itself."""
    if not declared:
        monkeypatch.setattr(wheel, "_ISOLATED", {"tir.block"})
    with make_context(), ir.Location.unknown(), pytest.raises(ir.MLIRError) as raised:
        ir.Module.parse(CAPTURE)
    first = raised.value.error_diagnostics[0]
    assert first.message == "'arith.addf' op using value defined outside the region"
    place = find_source_position(first.location)
    assert place is not None and CAPTURE.split("\n")[place.line - 1].strip().startswith("%0 =")
