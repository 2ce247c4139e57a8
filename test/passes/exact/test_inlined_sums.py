"""Sums of long kernels: inline in innermost loops, with the same results as by calls."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from scheduled_pairs import kernel_pairs

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.exact import compare
from mirlo.passes.exact.compare import KernelPair
from mirlo.passes.exact.field import FieldArithmetic
from mirlo.passes.exact.ir_text import ModuleText
from mirlo.passes.exact.kernel_definition import RoundSettings, run_function
from mirlo.passes.exact.memory import FORM, Array, RandomMemory
from mirlo.passes.exact.primes import P
from mirlo.passes.exact.scheduled import translate_scheduled
from mirlo.passes.exact.verdict import EQUAL

DEPTH = 300
MATMUL = f"""
func.func @main(%x: tensor<13x{DEPTH}xf32>, %w: tensor<{DEPTH}x50xf32>) -> tensor<13x50xf32> {{
  %y = "relax.matmul"(%x, %w) : (tensor<13x{DEPTH}xf32>, tensor<{DEPTH}x50xf32>) -> tensor<13x50xf32>
  return %y : tensor<13x50xf32>
}}
"""
RELU = """
func.func @main(%x: tensor<1000xf32>) -> tensor<1000xf32> {
  %y = "relax.relu"(%x) : (tensor<1000xf32>) -> tensor<1000xf32>
  return %y : tensor<1000xf32>
}
"""
FIELD = FieldArithmetic(False, False)


@pytest.fixture(name="context", autouse=True)
def _context() -> Iterator[None]:
    with make_context(), ir.Location.unknown():
        yield


def _text(pair: KernelPair, inlines_sums: bool) -> str:
    module = ModuleText(inlines_sums=inlines_sums)
    translate_scheduled(pair.scheduled, pair.definition.parameters, FIELD, module, "scheduled")
    return str(module)


def _result(pair: KernelPair, number: int) -> Array:
    """Return the result of the scheduled form where all elements are one number."""
    round_ = pair.definition.results(FIELD, RoundSettings(0))
    for buffer in round_.inputs:
        buffer.planes[0][:] = number
    outputs, _ = run_function(pair.compile_scheduled(FIELD), RandomMemory(FIELD, FORM), round_.inputs, {}, round_.table)
    return outputs[0].planes[0]


@pytest.mark.parametrize("least", [0, 1 << 60], ids=["inline", "calls"])
@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v4", "neoverse-v1"])
def test_sums_of_the_largest_residues_are_exact(cpu: str, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "LONG", least)
    ((_, pair),) = kernel_pairs(MATMUL, options=f"cpu={cpu}")
    assert pair.verify().status == EQUAL
    assert np.array_equal(_result(pair, P - 1), np.full(13 * 50, DEPTH))


def test_innermost_sums_are_no_calls() -> None:
    ((_, pair),) = kernel_pairs(MATMUL, options="cpu=x86-64-v4")
    inline, calls = (_text(pair, inlines_sums).count("call <16 x i32> @exact.sum") for inlines_sums in (True, False))
    assert inline < calls / 2


def test_kernels_without_sums_are_as_they_were() -> None:
    ((_, pair),) = kernel_pairs(RELU, options="cpu=x86-64-v4")
    assert _text(pair, True) == _text(pair, False)
