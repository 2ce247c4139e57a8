"""Loops around register tiles: LLVM does not look for addresses that they have in common."""

from __future__ import annotations

import re

import numpy as np
import pytest
from onnx_models import F32, make_model, node

import mirlo
from mirlo.dialects.bindings import ir, new_context
from mirlo.targets.llvm.outer_loops import hide_outer_indices

KERNEL = """
func.func @rows(%a: memref<1024xf32>, %n: index) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  scf.for %i = %c0 to %c1 step %c1 {
    %s:2 = scf.for %k = %c0 to %c1 step %c1 iter_args(%x = %zero, %y = %zero) -> (f32, f32) {
      %z = memref.load %a[%i] : memref<1024xf32>
      scf.yield %z, %x : f32, f32
    } {llvm.loop_annotation = #llvm.loop_annotation<unroll = <disable = true>>}
    memref.store %s#0, %a[%i] : memref<1024xf32>
  }
  scf.for %i = %c0 to %c1 step %c1 {
    scf.for %k = %c0 to %c1 step %c1 {
      memref.store %zero, %a[%i] : memref<1024xf32>
    }
  }
  return
}
"""


@pytest.mark.parametrize(("is_dynamic", "hidden"), [(True, 1), (False, 0)])
def test_only_loops_around_tiles_of_dynamic_kernels(is_dynamic: bool, hidden: int) -> None:
    text = KERNEL
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text if is_dynamic else text.replace(", %n: index", ""))
        hide_outer_indices(module)
        module.operation.verify()
        assert str(module).count("llvm.inline_asm") == hidden
        # Both uses are of the hidden index.
        assert str(module).count("%arg2]" if is_dynamic else "%arg1]") == (1 if hidden else 3)


TILE = """
func.func @tile(%a: memref<4096xf32>, %b: memref<4096xf32>) attributes {tir.prim_func} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %c64 = arith.constant 64 : index
  %offset = arith.muli %c8, %c64 : index
  %zero = arith.constant 0.0 : f32
  scf.for %i = %c0 to %c8 step %c1 {
    scf.for %j = %c0 to %c8 step %c1 {
      %row = arith.muli %i, %c64 : index
      %begin = arith.addi %row, %j : index
      %s = scf.for %k = %c0 to %c64 step %c1 iter_args(%x = %zero) -> (f32) {
        %first = arith.addi %begin, %k : index
        %second = arith.addi %first, %offset : index
        %y = memref.load %a[%first] : memref<4096xf32>
        %z = memref.load %a[%second] : memref<4096xf32>
        %w = memref.load %a[%j] : memref<4096xf32>
        %yz = arith.mulf %y, %z : f32
        %yzw = arith.mulf %yz, %w : f32
        %sum = arith.addf %x, %yzw : f32
        scf.yield %sum : f32
      } {llvm.loop_annotation = #llvm.loop_annotation<unroll = <disable = true>>}
      memref.store %s, %b[%begin] : memref<4096xf32>
    }
  }
  return
}
"""


def test_loops_over_accumulators_begin_somewhere() -> None:
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(TILE)
        hide_outer_indices(module)
        module.operation.verify()
        text = str(module)
    # Neither what no loop changes nor an index of a loop, which is one term already.
    assert text.count("llvm.inline_asm") == 1
    hidden = re.search(r"llvm.inline_asm .* (%\d+) : \(i64\) -> i64\n\s+(%\d+) = arith.index_cast", text)
    assert hidden is not None
    assert re.search(rf"%\d+ = arith.addi {hidden[2]}, %arg4 : index", text)
    begin = re.search(rf"{hidden[1]} = arith.index_cast (%\d+) : index to i64", text)
    assert begin is not None
    assert f"%arg1[{begin[1]}]" in text  # the loop around still stores where it did


@pytest.mark.parametrize("threads", [1, 2])
def test_convolutions_of_any_size(threads: int) -> None:
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((40, 8, 3, 3), dtype=np.float32)
    nodes = [node("Conv", "x w", "y", kernel_shape=[3, 3], strides=[2, 1], pads=[1, 1, 1, 1])]
    model = make_model(nodes, {"x": (F32, ("b", 8, "h", "w"))}, ["y"], {"w": weights})
    compiled = mirlo.compile(model, threads=threads)
    for batch, high, wide in ((1, 1, 1), (2, 5, 13), (1, 8, 31), (3, 4, 60)):
        x = rng.standard_normal((batch, 8, high, wide), dtype=np.float32)
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2]
        expected = np.einsum("bchwij,ocij->bohw", windows, weights)
        np.testing.assert_allclose(compiled(x), expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(("accesses", "results", "hidden"), [(48, 0, 1), (47, 0, 0), (0, 0, 0), (48, 1, 0)])
def test_indices_of_loops_with_many_accesses(accesses: int, results: int, hidden: int) -> None:
    copies = [
        f"""
        %at{i} = arith.addi %k, %n{i} : index
        %x{i} = memref.load %a[%at{i}] : memref<4096xf32>"""
        for i in range(accesses)
    ]
    carried = "iter_args(%s = %zero) -> (f32) " if results else ""
    text = f"""
func.func @copies(%a: memref<4096xf32>) attributes {{tir.prim_func}} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %zero = arith.constant 0.0 : f32
  {" ".join(f"%n{i} = arith.constant {i} : index" for i in range(accesses))}
  scf.for %i = %c0 to %c8 step %c1 {{
    {"%r = " if results else ""}scf.for %k = %c0 to %c8 step %c1 {carried}{{
        {"".join(copies)}
        scf.yield {"%s : f32" if results else ""}
    }} {{llvm.loop_annotation = #llvm.loop_annotation<unroll = <disable = true>>}}
  }}
  return
}}"""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        hide_outer_indices(module)
        module.operation.verify()
        printed = str(module)
    assert printed.count("llvm.inline_asm") == hidden
    if hidden:  # the loop still counts by its own index; each address is a sum of the hidden one
        name = re.search(r"llvm.inline_asm .*\n\s+(%\d+) = arith.index_cast", printed)
        assert name is not None
        assert printed.count(f"arith.addi {name[1]},") == accesses
