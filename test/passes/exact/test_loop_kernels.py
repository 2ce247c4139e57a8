"""Kernels that are written as loops, compared with what their operators mean in numpy."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from planted_faults import plant_fault
from scheduled_pairs import kernel_pairs

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.relax.array_meanings import det, inverse
from mirlo.passes.exact.compare import KernelPair
from mirlo.passes.exact.field import FieldArithmetic
from mirlo.passes.exact.field_number import NumberField
from mirlo.passes.exact.kernel_definition import RoundSettings
from mirlo.passes.exact.primes import EXPONENTS, VALUES
from mirlo.passes.exact.rounds import round_constants
from mirlo.passes.exact.sizes import MOST_POINTS
from mirlo.passes.exact.verdict import DIFFERENT, EQUAL

AXIS = "axis = 1 : i64"
X = "tensor<3x7xf32>"
PLACES = "tensor<3x7xi64>"
PROGRAMS = {
    "cumsum": (f"{AXIS}, exclusive = true, reverse = true", [X], [X]),
    "cumprod": (f"{AXIS}, exclusive = false, reverse = false", [X], [X]),
    "sort": (f"{AXIS}, descending = true", [X], [X]),
    "argsort": (f"{AXIS}, descending = false", [X], [PLACES]),
    "topk": (
        f"{AXIS}, k = 3 : i64, largest = true, sorted = true", [X], ["tensor<3x3xf32>", "tensor<3x3xi64>"],
    ),
    "scatter_elements": (f'{AXIS}, reduction = "add"', [X, PLACES, X], [X]),
    "scatter_nd": ('reduction = "max"', [X, "tensor<5x1xi64>", "tensor<5x7xf32>"], [X]),
    "det": ("", ["tensor<2x4x4xf32>"], ["tensor<2xf32>"]),
    "inverse": ("", ["tensor<2x4x4xf32>"], ["tensor<2x4x4xf32>"]),
    "slice_bounds": ("operandSegmentSizes = array<i32: 1, 1, 1, 1, 1>", ["tensor<4xi64>", *4 * ["tensor<3xi64>"]],
                     ["tensor<3x4xi64>"]),
    "col2im": (
        'image = ["4", "7"], channels = 3 : i64, operandSegmentSizes = array<i32: 1, 1>',
        ["tensor<2x18x15xf32>", "tensor<2xi64>"], ["tensor<2x3x4x7xf32>"],
    ),
    "argsort_rows": ("", ["tensor<30x3xi1>"], ["tensor<30xi64>"]),
    "tree_ensemble": (
        'mode = -1 : i64, aggregate = "sum", depth = 0 : i64',
        ["tensor<20x2xf32>", "tensor<9xf32>", "tensor<9x4xi64>", "tensor<5xi64>", "tensor<7x3xf32>"],
        ["tensor<20x3xf32>"],
    ),
    "non_max_suppression": (
        "most = [3], center = false, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1>",
        ["tensor<1x4x4xf32>", "tensor<1x1x4xf32>", "tensor<i64>", "tensor<f32>", "tensor<f32>"],
        ["tensor<3x3xi64>", "tensor<i64>"],
    ),
    "quantize_rows": (
        "block = 32 : i64, digits = 2 : i64, offset = -8 : i64", ["tensor<3x64xf32>"],
        ["tensor<2x2x3x32xi8>", "tensor<2x3xf32>", "tensor<2x2x3xi32>"],
    ),
}  # fmt: skip


def _text(operator: str) -> str:
    return _program(operator, *PROGRAMS[operator])


def _program(operator: str, attributes: str, operands: list[str], results: list[str]) -> str:
    names = [f"%{i}" for i in range(len(operands))]
    parameters = ", ".join(f"{name}: {kind}" for name, kind in zip(names, operands, strict=True))
    returned = ", ".join(f"%y#{i}" for i in range(len(results)))
    kinds = ", ".join(results)
    return (
        f"func.func @main({parameters}) -> ({kinds}) {{\n"
        f'%y:{len(results)} = "relax.{operator}"({", ".join(names)}) {{{attributes}}}'
        f": ({', '.join(operands)}) -> ({kinds})\n"
        f"return {returned} : {kinds}\n}}\n"
    )


@pytest.mark.parametrize("operator", PROGRAMS)
def test_loops_equal_what_their_operator_means(operator: str) -> None:
    """Each kernel is equal, and faults that are planted in it are found."""
    with make_context(), ir.Location.unknown():
        pairs = list(kernel_pairs(_text(operator), options="cpu=x86-64-v3"))
        assert pairs and all(pair.verify().status == EQUAL for _, pair in pairs)
        rng, definition = random.Random(0), pairs[-1][1].definition
        planted = [plant_fault(pairs[-1][1].scheduled, rng) for _ in range(4)]
        verdicts = [KernelPair(definition, each[0]).verify() for each in planted if each is not None]
        assert DIFFERENT in {verdict.status for verdict in verdicts}


ROWS, TOP = '?x?x{}, #relax.dims<["m", "n"]>', '?x5x{}, #relax.dims<["m", 5]>'
UPDATES = '?x?x{}, #relax.dims<["k", "l"]>'
DYNAMIC = {
    "topk": (
        f"{AXIS}, k = 5 : i64, largest = true, sorted = true", [ROWS.format("f32")],
        [TOP.format("f32"), TOP.format("i64")],
    ),
    "scatter_elements": (
        f'{AXIS}, reduction = "none"', [ROWS.format("f32"), UPDATES.format("i64"), UPDATES.format("f32")],
        [ROWS.format("f32")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("operator", DYNAMIC)
def test_sizes_meet_the_conditions_of_the_operator(operator: str) -> None:
    """At sizes that the call refuses, such as rows shorter than k, an operator means nothing."""
    attributes, *types = DYNAMIC[operator]
    text = _program(operator, attributes, *([f"tensor<{each}>" for each in listed] for listed in types))
    with make_context(), ir.Location.unknown():
        verdicts = [pair.verify() for _, pair in kernel_pairs(text, options="cpu=x86-64-v3")]
    assert verdicts and all(verdict.status == EQUAL for verdict in verdicts)
    least = min(sizes["n"] for verdict in verdicts for sizes in verdict.sizes)
    assert least >= (5 if operator == "topk" else 1)


SQUARE = 'tensor<?x?x?xf32, #relax.dims<["n", "n", "n"]>>'
LARGE = {
    "det": ("", [SQUARE], ['tensor<?xf32, #relax.dims<["n"]>>']),
    "inverse": ("", [SQUARE], [SQUARE]),
    "cumsum": (f"{AXIS}, exclusive = true, reverse = true", [SQUARE], [SQUARE]),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("operator", LARGE)
def test_sizes_are_those_that_python_computes(operator: str) -> None:
    """Sizes have a limit of the elements that Python computes one after another: n^4 for a stack of matrices."""
    with make_context(), ir.Location.unknown():
        ((_, pair),) = pairs = list(kernel_pairs(_program(operator, *LARGE[operator]), options="cpu=x86-64-v3"))
        verdict = pair.verify()
        points = [pair.definition.points_at(each) for each in verdict.sizes]
        left_out = pairs[0][1].definition.points_at({"n": 33})
    assert verdict.status == EQUAL and max(points) <= MOST_POINTS, str(verdict)
    assert operator == "cumsum" or max(sizes["n"] for sizes in verdict.sizes) == 17 and left_out > MOST_POINTS


@pytest.mark.parametrize("size", [0, 1, 2, 5])
@pytest.mark.parametrize("batch", [(), (0,), (1,), (2, 3)])
def test_matrices_of_residues(batch: tuple[int, ...], size: int) -> None:
    """A matrix times its inverse is the identity, and their determinants multiply to one, exactly."""
    planes, rng = (VALUES, EXPONENTS), np.random.default_rng(size)
    field = NumberField.of_round(planes, round_constants(3, ()))
    shape = [*batch, size, size]
    x = field.array([rng.integers(0, plane.modulus, math.prod(shape)) for plane in planes], shape)
    y = inverse(x)
    assert y.shape == x.shape and det(x).shape == batch
    assert np.all(np.matmul(x, y) == np.broadcast_to(np.eye(size, dtype=int), shape))
    assert np.all(det(x) * det(y) == 1)


@pytest.mark.parametrize("seed", range(12))
def test_inputs_of_tree_ensembles_are_trees(seed: int) -> None:
    """Nodes, roots and comparisons are those that the operator defines, within its depth, at any size."""
    rng = random.Random(seed)
    mode, aggregate = rng.choice((-1, 0, 3, 5, 9, 17)), rng.choice(("sum", "min", "max"))
    nodes, roots, leaves, features = (rng.choice(each) for each in ((1, 2, 9), (0, 1, 4), (1, 6), (1, 3)))
    depth, integer = rng.choice((0, 1, 4, 20)), rng.choice(("i32", "i64"))
    kinds = f"5x{features}xf32", f"{nodes}xf32", f"{nodes}x4x{integer}", f"{roots}x{integer}", f"{leaves}x2xf32"
    operands = [f"tensor<{kind}>" for kind in kinds]
    attributes = f'mode = {mode} : i64, aggregate = "{aggregate}", depth = {depth} : i64'
    text = _program("tree_ensemble", attributes, operands, ["tensor<5x2xf32>"])
    with make_context(), ir.Location.unknown():
        verdicts = [pair.verify() for _, pair in kernel_pairs(text, options="cpu=x86-64-v3")]
    assert verdicts and all(verdict.status == EQUAL for verdict in verdicts), [*map(str, verdicts)]


def test_constant_nodes_stay_as_they_are() -> None:
    """Nodes that are constants in the calls of a kernel are those of its rounds."""
    nodes = [[0, 0, 1, -1], [1, 3, -2, -3]]
    text = f"""func.func @main(%x: tensor<20x2xf32>, %t: tensor<2xf32>, %w: tensor<4x3xf32>) -> tensor<20x3xf32> {{
%n = "relax.constant"() {{value = dense<{nodes}> : tensor<2x4xi64>}} : () -> tensor<2x4xi64>
%r = "relax.constant"() {{value = dense<[0, -4]> : tensor<2xi64>}} : () -> tensor<2xi64>
%y = "relax.tree_ensemble"(%x, %t, %n, %r, %w) {{mode = -1 : i64, aggregate = "sum", depth = 0 : i64}}
: (tensor<20x2xf32>, tensor<2xf32>, tensor<2x4xi64>, tensor<2xi64>, tensor<4x3xf32>) -> tensor<20x3xf32>
return %y : tensor<20x3xf32>
}}
"""
    with make_context(), ir.Location.unknown():
        ((_, pair),) = pairs = list(kernel_pairs(text, options="cpu=x86-64-v3"))
        assert pair.verify().status == EQUAL
        definition = pairs[0][1].definition
        results = definition.results(FieldArithmetic(False, False, False), RoundSettings(0))
        constants = {i for each in definition.constants for i in each}
        assert len(constants) == 2
        kept = [results.inputs[i].planes[0].tolist() for i in sorted(constants)]
    assert kept == [[number for node in nodes for number in node], [0, -4]]
