"""Sums of products as matrix products of floats: the same residues as by loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.tir.view import prim_functions
from mirlo.passes.exact import products
from mirlo.passes.exact.double import DoubleArithmetic
from mirlo.passes.exact.field import FieldArithmetic
from mirlo.passes.exact.kernel_definition import BlockDefinition, RoundSettings
from mirlo.passes.exact.memory import GuardedBuffer, NumberBuffer, RandomMemory
from mirlo.passes.exact.primes import EXPONENTS, INFINITY, RESIDUE, VALUES, Plane
from mirlo.passes.exact.strided import StridedOperand
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session

PRODUCTS = {
    "matmul": ('"relax.matmul"(%x, %w)', "7x300xf32", "300x9xf32", "7x9xf32"),
    "batches": ('"relax.matmul"(%x, %w)', "2x3x5x8xf32", "2x3x8x6xf32", "2x3x5x6xf32"),
    "one matrix for a batch": ('"relax.matmul"(%x, %w)', "2x5x8xf32", "8x6xf32", "2x5x6xf32"),
    "batch of one": ('"relax.matmul"(%x, %w)', "1x5x8xf32", "8x6xf32", "1x5x6xf32"),
    "rows that are wider than columns": ('"relax.matmul"(%x, %w)', "40x12xf32", "12x5xf32", "40x5xf32"),
    "convolution": (
        '"relax.conv"(%x, %w) {strides = array<i64: 2, 2>, padding = array<i64: 1, 1, 1, 1>, '
        "dilations = array<i64: 1, 1>, groups = 1 : i64}",
        "1x3x9x9xf32", "8x3x3x3xf32", "1x8x5x5xf32",
    ),
}  # fmt: skip


def _definition(name: str, monkeypatch: pytest.MonkeyPatch, least: int) -> BlockDefinition:
    monkeypatch.setattr(products, "LEAST_POINTS", least)
    operator, left, right, result = PRODUCTS[name]
    text = f"""
    func.func @main(%x: tensor<{left}>, %w: tensor<{right}>) -> tensor<{result}> {{
      %y = {operator} : (tensor<{left}>, tensor<{right}>) -> tensor<{result}>
      return %y : tensor<{result}>
    }}
    """
    module = ir.Module.parse(text)
    Pipeline("builtin.module(legalize{target=c})").run(module, Session())
    return BlockDefinition(prim_functions(module.operation)[0].operation.clone())


@pytest.mark.parametrize("most", [1 << 22, 16], ids=["whole", "panels"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_matrices_are_those_of_loops(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "MOST_ELEMENTS", most)
    arithmetic = FieldArithmetic(True, False)
    with make_context(), ir.Location.unknown():
        by_matrices, by_loops = (_definition(name, monkeypatch, least) for least in (1, 1 << 60))
        assert by_matrices._products and not by_loops._products
        for number in range(2):
            drawn = by_matrices.results(arithmetic, RoundSettings(number))
            (actual,), (expected,) = (
                each.evaluate(arithmetic, RandomMemory(arithmetic, 0), drawn.inputs, {}, drawn.table)
                for each in (by_matrices, by_loops)
            )
            for left, right in zip(actual.planes, expected.planes, strict=True):
                assert (left == right).all()


PANELS = """
#left = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#panels = affine_map<(d0, d1, d2, d3) -> (d0, d2 floordiv 2, d3, d2 mod 2)>
#result = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
func.func @kernel(%x: tensor<1x5x8xf32>, %w: tensor<1x3x8x2xf32>) -> tensor<1x5x6xf32> attributes {tir.prim_func} {
  %y = "tir.block"(%x, %w) ({
  ^bb0(%n: index, %i: index, %j: index, %k: index, %a: f32, %b: f32, %sum: f32):
    %product = arith.mulf %a, %b : f32
    %next = arith.addf %sum, %product : f32
    "tir.yield"(%next) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "spatial", "spatial", "reduce"], domain = [1, 5, 6, 8], init = [0.0 : f32],
      maps = [#left, #panels, #result], name = "matmul",
      operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
      resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<1x5x8xf32>, tensor<1x3x8x2xf32>) -> tensor<1x5x6xf32>
  return %y : tensor<1x5x6xf32>
}
"""


def test_both_factors_read_an_axis_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed weights of a batch of one: the index of the batch is zero for both."""
    arithmetic = FieldArithmetic(False, False)
    with make_context(), ir.Location.unknown():
        results = []
        for least in (1, 1 << 60):
            monkeypatch.setattr(products, "LEAST_POINTS", least)
            module = ir.Module.parse(PANELS)
            definition = BlockDefinition(prim_functions(module.operation)[0].operation.clone())
            assert bool(definition._products) == (least == 1)
            results.append(definition.results(arithmetic, RoundSettings(0)).outputs[0].planes[0])
    assert (results[0] == results[1]).all()


def test_small_integers_are_factors_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of a graph are integers, whose residues no product needs."""
    arithmetic = FieldArithmetic(False, False)
    rng = np.random.default_rng(0)
    integers = rng.integers(-2000, 2000, 2700).astype(np.float32)
    with make_context(), ir.Location.unknown():
        definition = _definition("matmul", monkeypatch, 1)
        x, _ = definition.results(arithmetic, RoundSettings(0)).inputs
        numbers = NumberBuffer(integers, arithmetic.moduli, "w")
        residues = GuardedBuffer.of([(integers.astype(np.int64) % VALUES.modulus).astype(RESIDUE)])
        memory, table = RandomMemory(arithmetic, 0), np.zeros(1000, np.int64)
        results = [definition.evaluate(arithmetic, memory, [x, w], {}, table)[0] for w in (numbers, residues)]
    assert not numbers._wholes and (results[0].planes[0] == results[1].planes[0]).all()
    assert (numbers.planes[0] == residues.planes[0]).all()


def test_infinities_and_floats_are_computed_by_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    arithmetic = FieldArithmetic(False, True)
    with make_context(), ir.Location.unknown():
        results = []
        for least in (1, 1 << 60):
            definition = _definition("matmul", monkeypatch, least)
            inputs = definition.results(arithmetic, RoundSettings(0)).inputs
            inputs[0].planes[0][5] = INFINITY
            memory, table = RandomMemory(arithmetic, 0), np.zeros(1000, np.int64)
            results.append(definition.evaluate(arithmetic, memory, inputs, {}, table)[0].planes[0])
            assert definition.results(DoubleArithmetic(), RoundSettings(0)).outputs[0].planes[0].dtype == np.float64
    assert (results[0] == results[1]).all() and (results[0] == INFINITY).any()


def test_other_blocks_are_no_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """A softmax has sums, maxima and quotients, and no products of matrices."""
    monkeypatch.setattr(products, "LEAST_POINTS", 1)
    text = """
    func.func @main(%x: tensor<5x40xf32>) -> tensor<5x40xf32> {
      %y = "relax.softmax"(%x) {axis = 1 : i64} : (tensor<5x40xf32>) -> tensor<5x40xf32>
      return %y : tensor<5x40xf32>
    }
    """
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        Pipeline("builtin.module(legalize{target=c})").run(module, Session())
        definition = BlockDefinition(prim_functions(module.operation)[0].operation.clone())
    assert not definition._products


INDICES: dict[str, tuple[str, Callable[[int, int], Sequence[int]], tuple[int, int], tuple[int, ...]]] = {
    "transposed": ("(i, j) -> (j, i)", lambda i, j: (j, i), (3, 4), (4, 3)),
    "panels": ("(i, j) -> (j floordiv 4, i, j mod 4)", lambda i, j: (j // 4, i, j % 4), (3, 12), (3, 3, 4)),
    "a last panel that is not full": (
        "(i, j) -> (j floordiv 4, i, j mod 4)", lambda i, j: (j // 4, i, j % 4), (3, 10), (3, 3, 4),
    ),
    "rests first": ("(i, j) -> (i mod 2, j, i floordiv 2)", lambda i, j: (i % 2, j, i // 2), (5, 2), (2, 2, 3)),
    "windows": ("(i, j) -> (i * 2 + j)", lambda i, j: (i * 2 + j,), (4, 3), (9,)),
    "windows beyond both edges": ("(i, j) -> (i + j * 2 - 3)", lambda i, j: (i + j * 2 - 3,), (6, 3), (5,)),
    "backwards": ("(i, j) -> (j, 4 - i)", lambda i, j: (j, 4 - i), (5, 2), (2, 5)),
    "groups": ("(i, j) -> (i floordiv 3, j)", lambda i, j: (i // 3, j), (6, 2), (2, 2)),
    "one element": ("(i, j) -> (0)", lambda i, j: (0,), (1, 1), (1,)),
}  # fmt: skip


@pytest.mark.parametrize("name", INDICES)
def test_strided_operands_are_those_of_their_maps(name: str) -> None:
    text, indices, domain, shape = INDICES[name]
    numbers = np.arange(1, np.prod(shape) + 1)
    with make_context():
        strided = _strided(text, shape, domain, "edges" in name)
    assert strided is not None
    elements = strided.padded(numbers)
    parts = [
        [range(start, end) for start in range(0, extent, strided.divisor(axis)) for end in range(start + 1, extent + 1)]
        for axis, extent in enumerate(domain)
    ]

    def element(at: dict[int, int]) -> int:
        index = indices(at[0], at[1])
        is_inside = all(0 <= each < size for each, size in zip(index, shape, strict=True))
        return int(numbers.reshape(shape)[tuple(index)]) if is_inside else 0

    for ranges in (dict(enumerate(chosen)) for chosen in product(*parts)):
        for axes in ((0, 1), (1, 0)):
            copy = np.ascontiguousarray(strided.view(elements, axes, ranges))
            expected = [[element({axes[0]: i, axes[1]: j}) for j in ranges[axes[1]]] for i in ranges[axes[0]]]
            assert strided.without_surplus(copy, axes, ranges).tolist() == expected
            assert strided.is_whole(axes, ranges) == (copy.size == len(ranges[0]) * len(ranges[1]))


@pytest.mark.parametrize("text, shape, domain", [
    ("(i, j) -> ((i + j) mod 3)", (3,), (2, 2)),
    ("(i, j) -> (i floordiv 2, i mod 3, j)", (3, 3, 1), (6, 1)),
    ("(i, j) -> (i ceildiv 2, j)", (4, 2), (6, 2)),
    ("(i, j) -> (i + j - 1)", (5,), (3, 3)),
], ids=["rests of sums", "two divisors", "rounded up", "beyond an edge that is none"])  # fmt: skip
def test_other_maps_have_no_strides(text: str, shape: tuple[int, ...], domain: tuple[int, int]) -> None:
    with make_context():
        assert _strided(text, shape, domain, False) is None


def _strided(text: str, shape: Sequence[int], domain: Sequence[int], has_edges: bool) -> StridedOperand | None:
    attribute = ir.Attribute.parse(f"affine_map<{text}>")
    return StridedOperand.of(ir.AffineMapAttr(attribute).value, shape, domain, has_edges)


@pytest.mark.parametrize("depth", [1, 3, 700, 5000])
@pytest.mark.parametrize("plane", [VALUES, EXPONENTS], ids=["P", "Q"])
def test_products_of_the_largest_residues_are_exact(plane: Plane, depth: int) -> None:
    """Residues around half of the modulus are the largest numbers: each sum is near the bound of its parts."""
    rng = np.random.default_rng(0)
    half = plane.modulus >> 1
    left = np.where(rng.random((2, 3, depth)) < 0.5, half, -half) - rng.integers(0, 2, (2, 3, depth))
    right = np.where(rng.random((2, depth, 4)) < 0.5, half, -half)
    for shift, numbers in ((half, right + half), (0, right)):
        split = products.SplitFactor(left.astype(np.float64), (half + 1) * depth, shift, plane)
        actual = split.times((numbers - shift).astype(np.float64), slice(None))
        expected = (left.astype(object) @ numbers.astype(object)) % plane.modulus
        assert (actual == expected).all()


def test_sums_too_deep_for_parts_are_no_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "MOST_DEPTH", 299)
    with make_context(), ir.Location.unknown():
        assert not _definition("matmul", monkeypatch, 1)._products
