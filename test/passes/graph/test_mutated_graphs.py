"""Rules of graphs keep what a graph computes, whatever its shapes: they decline, or are right."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np
import pytest
from mutated_graphs import NoMeaning, computed, graphs, mutated

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.apply_rules import RULE_WATCH, AppliedRule
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.rules import COMBINE, LAYOUT, RECOGNIZE, SIMPLIFY

GRAPHS = dict(graphs())
SEEDS = 3
ELSEWHERE = {
    "as_convolution": "numpy has no transposed convolution: test_conv_transpose.py draws them",
    "conv_transpose_in_layout": "no default asks for it: convert-layout-transposed.mlir",
    "weight_gradient_in_layout": "numpy has no such gradient: convert-layout-transposed.mlir, tests of training",
}
"""Rules that take no graph here, why, and their tests."""
PASSES = "simplify,fold-constant,convert-layout,simplify,fold-constant,remove-dead"


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", GRAPHS)
def test_other_shapes(name: str) -> None:
    """The fault of a rule is an error in tests."""
    check(name, SEEDS)


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", GRAPHS)
def test_dims_of_no_elements(name: str) -> None:
    check(name, 2, is_empty=True)


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", GRAPHS)
def test_values_that_others_read(name: str) -> None:
    check(name, 1, share=0, is_shared=True)


class TakenRules:
    """The names of the rules that graphs take."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def see(self, op: object, applied: AppliedRule, emitted: object, session: object) -> None:
        self.names.add(applied.rule.name)


@pytest.mark.sample(0)
def test_each_rule_has_other_shapes() -> None:
    """No rule is without a graph whose shapes are drawn: a new one has an example in `simplify-*.mlir`."""
    taken = TakenRules()
    for name in GRAPHS:
        random = np.random.default_rng(crc32(name.encode()))
        for forms in ({}, {}, {}, {}, {"share": 0.1}, {"share": 0.1}, {"share": 0.0, "is_shared": True}):
            with make_context(), ir.Location.unknown():
                made = mutated(GRAPHS[name], random, **forms)
                if made is None:
                    break
                made.session.options[RULE_WATCH] = taken
                Pipeline(PASSES).run(made.module, made.session)
    rules = {rule.name for book in (RECOGNIZE, SIMPLIFY, COMBINE, LAYOUT) for rule in book}
    assert rules - taken.names == set(ELSEWHERE)


def check(name: str, seeds: int, **forms: Any) -> None:
    """Compare what changed graphs compute before and after the rules."""
    random = np.random.default_rng(crc32(name.encode()))
    for _ in range(seeds):
        with make_context(), ir.Location.unknown():
            made = mutated(GRAPHS[name], random, **forms)
            if made is None:
                pytest.skip("no other shapes")
            text = str(made.module)
            Pipeline(PASSES).run(made.module, made.session)
            try:
                found = computed(made.module, made.session, made.inputs)
            except NoMeaning:
                continue
        for array, expected in zip(found, made.expected, strict=True):
            assert array.shape == expected.shape, text
            if expected.dtype.kind in "iu" and expected.dtype.itemsize == 1:
                # Integers are rounded once where a chain of f32 was rounded in each step.
                assert np.abs(array.astype(int) - expected.astype(int)).max(initial=0) <= 1, text
            else:
                largest = np.abs(np.nan_to_num(expected.astype(np.float64))).max(initial=1)
                np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-5 * largest, err_msg=text)


SUM = """
func.func @sum(%x: tensor<{x}xi8>) -> tensor<{y}xi8> {{
  %s = "relax.constant"() {{value = dense<0.5> : tensor<f32>}} : () -> tensor<f32>
  %t = "relax.constant"() {{value = dense<0.25> : tensor<f32>}} : () -> tensor<f32>
  %c = "relax.constant"() {{value = dense<1.25> : tensor<{c}xf32>}} : () -> tensor<{c}xf32>
  %0 = "relax.dequantize"(%x, %s) : (tensor<{x}xi8>, tensor<f32>) -> tensor<{x}xf32>
  %1 = "relax.{operator}"({operands}) : ({types}) -> tensor<{y}xf32>
  %2 = "relax.quantize"(%1, %t) {{dtype = i8}} : (tensor<{y}xf32>, tensor<f32>) -> tensor<{y}xi8>
  return %2 : tensor<{y}xi8>
}}
"""
PAIRS = [("1", "4"), ("1x4", "3x1"), ("4", "3x4"), ("3x1", "3x4"), ("1x1", "3x4"), ("3x4", "1x4"), ("3x4", "2x3x4")]


@pytest.mark.sample(6)
@pytest.mark.parametrize(("x", "c"), PAIRS)
@pytest.mark.parametrize("operator", ["add", "subtract", "multiply"])
def test_quantized_sums_that_broadcast(operator: str, x: str, c: str) -> None:
    shapes = [tuple(map(int, each.split("x"))) for each in (x, c)]
    result = "x".join(map(str, np.broadcast_shapes(*shapes)))
    for order in (0, 1):
        named = [("%0", f"tensor<{x}xf32>"), ("%c", f"tensor<{c}xf32>")][:: -1 if order else 1]
        operands, types = (", ".join(each) for each in zip(*named, strict=True))
        text = SUM.format(x=x, c=c, y=result, operator=operator, operands=operands, types=types)
        with make_context(), ir.Location.unknown():
            made = mutated(text, np.random.default_rng(0), share=0)
            assert made is not None
            Pipeline(PASSES).run(made.module, made.session)
            (found,) = computed(made.module, made.session, made.inputs)
        np.testing.assert_allclose(found.astype(int), made.expected[0].astype(int), atol=1)
