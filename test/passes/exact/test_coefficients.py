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
from mirlo.passes.exact import products
from mirlo.passes.exact.coefficients import Coefficient
from mirlo.passes.exact.compare import KernelPair
from mirlo.passes.exact.double import DoubleArithmetic
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
TILED_MAP = "(b + i floordiv 2, j * 2 + k - 1, l)"
OF_TILES = """
    %c2 = arith.constant 2 : index
    %tile = arith.floordivsi %i, %c2 : index
    %start = arith.muli %tile, %c2 : index
    %place = arith.subi %i, %start : index
    %half = arith.constant -1.125 : f32
    %one = arith.constant 1.0 : f32
    %is_first = arith.cmpi eq, %place, %k : index
    %c = arith.select %is_first, %half, %one : f32
"""
"""The same by the place of the row in a tile of two."""
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


def _function(coefficient: str, places: str = "(b, j * 2 + k - 1, l)") -> ir.Operation:
    data, result = "tensor<8x14x3xf32>", "tensor<6x5x7xf32>"
    module = ir.Module.parse(f"""
    func.func private @transform(%data: {data}) -> {result} attributes {{tir.prim_func}} {{
      %y = "tir.block"(%data) ({{
      ^bb0(%i: index, %b: index, %j: index, %k: index, %l: index, %x: f32, %acc: f32):
        {coefficient}
        %p = arith.mulf %x, %c : f32
        %s = arith.addf %acc, %p : f32
        "tir.yield"(%s) {{operandSegmentSizes = array<i32: 1, 0, 0, 0>}} : (f32) -> ()
      }}) {{axes = ["spatial", "spatial", "spatial", "reduce", "reduce"], domain = {list(DOMAIN)},
          init = [0.0 : f32], name = "transform", outside = [0.0 : f32],
          maps = [affine_map<(i, b, j, k, l) -> {places}>, affine_map<(i, b, j, k, l) -> (i, b, j)>],
          operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
          resultSegmentSizes = array<i32: 1, 0, 0, 0>}} : ({data}) -> {result}
      return %y : {result}
    }}
    """)
    return module.body.operations[0].operation.clone(ip=False).operation


def _compare_with_loops(function: ir.Operation, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """Compare sums by coefficients with those of loops, return them."""
    definition = BlockDefinition(function)
    assert len(definition._products) == len(definition._coefficients) == 1
    monkeypatch.setattr(Coefficient, "of", lambda block: None)
    expected = BlockDefinition(function)
    assert not expected._products
    results = []
    for arithmetic, number in ((FIELD, 0), (FIELD, 1), (FieldArithmetic(True, False), 0), (DoubleArithmetic(), 0)):
        actual, loops = (
            each.results(arithmetic, RoundSettings(number, has_easy_sums=True)).outputs[0].planes[0]
            for each in (definition, expected)
        )
        compare = np.allclose if actual.dtype == np.float64 else np.array_equal
        assert compare(actual, loops)
        results.append(actual)
    return results


def test_sums_by_coefficients_are_products_of_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    for actual in _compare_with_loops(_function(COEFFICIENT), monkeypatch)[:2]:
        assert len(np.unique(actual)) == 2 * 5 * 7  # two rows of coefficients differ


def test_coefficients_by_the_place_in_a_tile_are_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "LEAST_WIDTH", 2)
    for actual in _compare_with_loops(_function(OF_TILES, TILED_MAP), monkeypatch)[:2]:
        assert len(np.unique(actual)) == 2 * (5 + 2) * 7  # two places, and tiles and batches that read the same rows


@pytest.mark.parametrize("coefficient", [OF_NO_ROW, OF_ELEMENTS], ids=["no row", "elements"])
def test_other_factors_stay_in_their_block(coefficient: str) -> None:
    assert not BlockDefinition(_function(coefficient))._products


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
