"""Coefficients that depend on indices only: definitions compute each once, to the same residues."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
from planted_faults import plant_fault
from scheduled_pairs import kernel_pairs

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.exact import kernel_definition, products
from mirlo.passes.exact.compare import KernelPair
from mirlo.passes.exact.field import FieldArithmetic
from mirlo.passes.exact.kernel_definition import BlockDefinition, RoundSettings
from mirlo.passes.exact.verdict import DIFFERENT, EQUAL

FIELD = FieldArithmetic(False, False)
DOMAIN = (6, 5, 7, 9, 3)
"""Rows of coefficients, batch, columns, and the two axes of the sum."""
COEFFICIENT = """
    %c2 = arith.constant 2 : index
    %half = arith.constant -1.125 : f32
    %one = arith.constant 1.0 : f32
    %is_first = arith.cmpi eq, %i, %c2 : index
    %is_second = arith.cmpi ult, %k, %c2 : index
    %both = arith.andi %is_first, %is_second : i1
    %f = arith.select %both, %half, %one : f32
    %g = arith.select %is_second, %half, %f : f32
    %c = arith.mulf %f, %g : f32
"""
"""A number by the row `i` and the index `k` of a sum."""
OF_NO_ROW = "%c = arith.constant 3.0 : f32"
OF_ELEMENTS = f"{COEFFICIENT.replace('%c =', '%d =')} %c = arith.mulf %d, %x : f32"

X, W, Y = "tensor<1x56x56x64xf32>", "tensor<3x3x64x32xf32>", "tensor<1x56x56x32xf32>"
CONVOLUTION = f"""
func.func @main(%x: {X}, %w: {W}) -> {Y} {{
  %y = "relax.conv"(%x, %w) {{padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO",
    operandSegmentSizes = array<i32: 1, 1, 0>}} : ({X}, {W}) -> {Y}
  return %y : {Y}
}}
"""
"""A convolution that is computed by Winograd's algorithm."""
FAULTS = 12


@pytest.fixture(name="context", autouse=True)
def _context(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(products, "LEAST_POINTS", 1)
    with make_context(), ir.Location.unknown():
        yield


def _function(coefficient: str) -> ir.Operation:
    result = "tensor<6x5x7xf32>"
    module = ir.Module.parse(f"""
    func.func private @transform(%data: tensor<5x14x3xf32>) -> {result} attributes {{tir.prim_func}} {{
      %y = "tir.block"(%data) ({{
      ^bb0(%i: index, %b: index, %j: index, %k: index, %l: index, %x: f32, %acc: f32):
        {coefficient}
        %p = arith.mulf %x, %c : f32
        %s = arith.addf %acc, %p : f32
        "tir.yield"(%s) {{operandSegmentSizes = array<i32: 1, 0, 0, 0>}} : (f32) -> ()
      }}) {{axes = ["spatial", "spatial", "spatial", "reduce", "reduce"], domain = {list(DOMAIN)},
          init = [0.0 : f32], name = "transform", outside = [0.0 : f32],
          maps = [affine_map<(i, b, j, k, l) -> (b, j * 2 + k - 1, l)>, affine_map<(i, b, j, k, l) -> (i, b, j)>],
          operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
          resultSegmentSizes = array<i32: 1, 0, 0, 0>}} : (tensor<5x14x3xf32>) -> {result}
      return %y : {result}
    }}
    """)
    return module.body.operations[0].operation.clone(ip=False).operation


def _results(definition: BlockDefinition, number: int) -> np.ndarray:
    return definition.results(FIELD, RoundSettings(number, has_easy_sums=True)).outputs[0].planes[0]


def test_sums_by_coefficients_are_products_of_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    function = _function(COEFFICIENT)
    definition = BlockDefinition(function)
    assert len(definition.view.blocks) == 2
    assert len(definition._products) == 1
    monkeypatch.setattr(kernel_definition, "with_coefficients", lambda operation: operation)
    expected = BlockDefinition(function)
    assert not expected._products
    for number in range(2):
        actual = _results(definition, number)
        assert np.array_equal(actual, _results(expected, number))
        assert len(np.unique(actual)) == 2 * 5 * 7  # two rows of coefficients differ


@pytest.mark.parametrize("coefficient", [OF_NO_ROW, OF_ELEMENTS], ids=["no row", "elements"])
def test_other_factors_stay_in_their_block(coefficient: str) -> None:
    function = _function(coefficient)
    assert BlockDefinition(function).view.op == function


def test_the_function_is_not_changed() -> None:
    function = _function(COEFFICIENT)
    before = str(function)
    BlockDefinition(function)
    assert str(function) == before


def test_faults_in_transforms_are_found() -> None:
    rng = random.Random(5)
    pairs = kernel_pairs(CONVOLUTION, options="cpu=x86-64-v4")
    module, pair = next((module, each) for module, each in pairs if "input" in each.definition.name)
    assert pair.verify().status == EQUAL
    planted = [each for each in (plant_fault(pair.scheduled, rng) for _ in range(FAULTS)) if each is not None]
    assert len(planted) > FAULTS // 2
    for function, kind in planted:
        assert KernelPair(pair.definition, function).verify().status == DIFFERENT, f"{kind}: {function}"
    assert module.operation.verify()
