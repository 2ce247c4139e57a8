"""Positions are compared in 32 bits, and what data says is not."""

from __future__ import annotations

import pytest

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.lower.calls import find
from mirlo.targets.nvvm.positions import narrow_comparisons

KERNEL = """gpu.module @m {{
  gpu.func @k(%x: memref<64xi32>, %y: memref<64xi64>, %n: index) kernel {{
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %many = arith.constant 64 : index
    %huge = arith.constant 9223372036854775807 : index
    %thread = gpu.thread_id x
    %i32 = memref.load %x[%thread] : memref<64xi32>
    %i64 = memref.load %y[%thread] : memref<64xi64>
    %a = arith.index_cast %i32 : i32 to index
    %b = arith.index_cast %i64 : i64 to index
    %from_loop, %from_data = scf.for %i = %zero to %many step %one
      iter_args(%p = %thread, %q = %thread) -> (index, index) {{
      %next = arith.addi %p, %i : index
      %other = arith.addi %q, %a : index
      scf.yield %next, %other : index, index
    }}
    %sum = arith.addi %from_loop, %many : index
    %c = arith.cmpi slt, {left}, {right} : index
    scf.if %c {{
      memref.store %i32, %x[%zero] : memref<64xi32>
    }}
    gpu.return
  }}
}}"""


@pytest.mark.parametrize(
    ("left", "right", "narrow"),
    [
        ("%thread", "%many", True), ("%sum", "%thread", True), ("%a", "%many", False), ("%b", "%many", False),
        ("%thread", "%huge", False), ("%thread", "%n", False), ("%from_data", "%many", False),
    ],
)  # fmt: skip
def test_comparisons(left: str, right: str, narrow: bool) -> None:
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(KERNEL.format(left=left, right=right))
        narrow_comparisons(module.operation)
        assert module.operation.verify()
        (compare,) = find(module, "arith.cmpi")
        assert str(compare.operands[0].type) == ("i32" if narrow else "index")
