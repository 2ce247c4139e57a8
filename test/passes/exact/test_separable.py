"""Inputs that are products of two factors: sums of their products are those of any inputs, and faults are found."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from planted_faults import dropped_bound, least_for_greatest, plant_fault, wrong_constant
from scheduled_pairs import kernel_pairs
from test_planted_faults import is_harmless

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.exact import products
from mirlo.passes.exact.compare import KernelPair
from mirlo.passes.exact.field import FieldArithmetic
from mirlo.passes.exact.kernel_definition import BlockDefinition, RoundSettings
from mirlo.passes.exact.memory import GuardedBuffer, RandomMemory
from mirlo.passes.exact.separable import SeparableBuffer
from mirlo.passes.exact.verdict import EQUAL

FAULTS = 3
"""How many faults of any kind, and how many in the epilogue, are planted in a kernel."""
IN_EPILOGUES = (dropped_bound, least_for_greatest, wrong_constant)


@dataclass(frozen=True)
class Product:
    """A sum of products: the operator with its attributes, the types of both operands and of the result."""

    operator: str
    left: str
    right: str
    result: str


def _matmul(rng: random.Random) -> Product:
    m, n, k = rng.randint(5, 40), rng.randint(5, 60), rng.randint(4, 40)
    batch = rng.choice(("", "3x", "2x3x"))
    return Product('"relax.matmul"(%x, %w)', *(f"tensor<{batch}{a}x{b}xf32>" for a, b in ((m, k), (k, n), (m, n))))


def _conv(rng: random.Random) -> Product:
    c, o, taps, size = rng.choice((4, 6, 16)), rng.choice((8, 24, 32)), rng.choice((1, 3)), rng.randint(6, 12)
    stride, padding = rng.choice((1, 2)), rng.choice((0, taps // 2))
    out = (size + 2 * padding - taps) // stride + 1
    pads = ", ".join([str(padding)] * 4)
    attributes = f"{{strides = array<i64: {stride}, {stride}>, padding = array<i64: {pads}>}}"
    kinds = (1, c, size, size), (o, c, taps, taps), (1, o, out, out)
    return Product(f'"relax.conv"(%x, %w) {attributes}', *(f"tensor<{'x'.join(map(str, k))}xf32>" for k in kinds))


EPILOGUES = {
    "none": "",
    "relu": '%y1 = "relax.relu"(%y0) : (Y) -> Y',
    "clip": '%y1 = "relax.clip"(%y0) {min = 0.0, max = 6.0} : (Y) -> Y',
    "residual, relu": '%y1 = "relax.add"(%y0, %r) : (Y, Y) -> Y\n%y2 = "relax.relu"(%y1) : (Y) -> Y',
    "square": '%y1 = "relax.multiply"(%y0, %y0) : (Y, Y) -> Y',
    "gelu": '%y1 = "relax.gelu"(%y0) : (Y) -> Y',
}


@pytest.fixture(name="context", autouse=True)
def _context(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(products, "LEAST_POINTS", 1)
    with make_context(), ir.Location.unknown():
        yield


def _text(product: Product, epilogue: str, x: str = "%x") -> str:
    lines = epilogue.replace("Y", product.result)
    last = max(f"%y{i}" for i in range(3) if i == 0 or f"%y{i} =" in lines)
    call = product.operator.replace("%x", x)
    return f"""
    func.func @main(%x: {product.left}, %w: {product.right}, %r: {product.result}) -> {product.result} {{
      %y0 = {call} : ({product.left}, {product.right}) -> {product.result}
      {lines}
      return {last} : {product.result}
    }}
    """


def _pairs(product: Product, epilogue: str) -> Iterator[KernelPair]:
    for _, pair in kernel_pairs(_text(product, epilogue), options="cpu=x86-64-v4"):
        if isinstance(pair.definition, BlockDefinition) and pair.definition._products:
            yield pair


@pytest.mark.parametrize("has_exponents", [False, True])
@pytest.mark.parametrize("make", [_matmul, _conv])
@pytest.mark.parametrize("seed", range(8))
def test_sums_are_those_of_any_inputs(seed: int, make: object, has_exponents: bool) -> None:
    assert callable(make)
    arithmetic = FieldArithmetic(has_exponents, False)
    compared = 0
    for pair in _pairs(make(random.Random(seed)), EPILOGUES["square"]):
        definition = pair.definition
        separated = []
        for number in range(2):
            results = definition.results(arithmetic, RoundSettings(number, has_easy_sums=True))
            separated.append([i for i, x in enumerate(results.inputs) if isinstance(x, SeparableBuffer)])
            plain = [GuardedBuffer(each.wholes, each.count) for each in results.inputs]
            memory = RandomMemory(arithmetic, 0)
            (actual,), (expected,) = (
                definition.evaluate(arithmetic, memory, inputs, {}, results.table) for inputs in (results.inputs, plain)
            )
            for left, right in zip(actual.planes, expected.planes, strict=True):
                assert np.array_equal(left, right)
            assert np.array_equal(results.outputs[0].planes[0], expected.planes[0])
            assert all(x.planes[0].min() >= 0 and len(np.unique(x.planes[0])) > 0.9 * x.count for x in results.inputs)
        assert not set(separated[0]) & set(separated[1])
        compared += all(separated)
    assert compared


@pytest.mark.sample(24)
@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("make", [_matmul, _conv])
@pytest.mark.parametrize("seed", range(12))
def test_each_fault_is_found(seed: int, make: object, name: str) -> None:
    """Of any kind, and of those that change a bound, a maximum or a constant of the epilogue."""
    assert callable(make)
    rng = random.Random(f"{seed} {name}")
    for pair in _pairs(make(rng), EPILOGUES[name]):
        assert pair.verify().status == EQUAL
        for among in [()] * FAULTS + [IN_EPILOGUES] * FAULTS:
            planted = plant_fault(pair.scheduled, rng, among)
            if planted is not None:
                function, kind = planted
                is_missed = KernelPair(pair.definition, function).verify().status == EQUAL
                assert not is_missed or is_harmless(pair.definition, function), f"{kind}: {function}"


@pytest.mark.parametrize("x", ["%w", "%x"])
def test_inputs_that_are_read_twice_stay_as_they_are(x: str) -> None:
    square = Product('"relax.matmul"(%x, %w)', *["tensor<24x24xf32>"] * 3)
    ((_, pair),) = kernel_pairs(_text(square, EPILOGUES["square"], x), options="cpu=x86-64-v4")
    assert isinstance(pair.definition, BlockDefinition)
    assert bool(pair.definition._separable) == (x == "%x" and len(pair.definition._products) == 1)


def test_short_sums_stay_as_they_are() -> None:
    for depth in (3, 4):
        kinds = [f"tensor<{m}x{n}xf32>" for m, n in ((24, depth), (depth, 24), (24, 24))]
        (pair,) = _pairs(Product('"relax.matmul"(%x, %w)', *kinds), EPILOGUES["square"])
        assert isinstance(pair.definition, BlockDefinition) and bool(pair.definition._separable) == (depth == 4)
