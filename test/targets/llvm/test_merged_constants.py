"""Kernels that may be one: of any number of constants, none included."""

from __future__ import annotations

import pytest

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.symbols import symbol_name
from mirlo.targets.llvm.merge_kernels import merge_kernels

KERNEL = """
func.func private @k{number}(%x: memref<4xf32>, %i: index) attributes {{tir.prim_func}} {{
  {constants}
  %0 = memref.load %x[%i] : memref<4xf32>
  {operations}
  memref.store %{last}, %x[%i] : memref<4xf32>
  return
}}
"""


@pytest.mark.parametrize("constants", range(4))
@pytest.mark.parametrize("kernels", range(1, 4))
def test_constants(constants: int, kernels: int) -> None:
    """Constants that differ become arguments; kernels without constants stay as they are."""
    texts = []
    for number in range(kernels):
        made = [f"%c{i} = arith.constant {number + i}.5 : f32" for i in range(constants)]
        operations = [f"%{i + 1} = arith.mulf %{i}, %c{i} : f32" for i in range(constants)]
        texts.append(KERNEL.format(number=number, constants="\n  ".join(made), operations="\n  ".join(operations),
                                   last=constants))  # fmt: skip
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse("".join(texts))
        symbols = {symbol_name(op): op.operation for op in module.body.operations}
        merged = merge_kernels([(0, name, symbols) for name in symbols])
        assert module.operation.verify()
    varied = constants and kernels > 1
    assert {name: len(values) for name, values in merged.items()} == (
        dict.fromkeys(symbols, constants) if varied else {}
    )
