"""Faults that are planted in kernels: each is found, unless results are the same with it."""

from __future__ import annotations

import random

import numpy as np
import pytest
from generated_kernels import GENERATORS, attention
from planted_faults import plant_fault
from scheduled_pairs import kernel_pairs

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.exact.compare import KernelPair
from mirlo.passes.exact.double import DoubleArithmetic
from mirlo.passes.exact.kernel_definition import KernelDefinition, RoundSettings, run_function
from mirlo.passes.exact.memory import RandomMemory
from mirlo.passes.exact.verdict import EQUAL

FAULTS = 3
"""How many faults are planted in each kernel."""
ROUNDING = 1e-12


@pytest.mark.sample(50)
@pytest.mark.parametrize("seed", range(200))
def test_each_fault_is_found(seed: int) -> None:
    rng = random.Random(seed)
    text = attention(rng).text() if seed % 5 == 0 else rng.choice(GENERATORS)(rng).text(rng.random() < 0.8)
    with make_context(), ir.Location.unknown():
        for _, pair in kernel_pairs(text, options="cpu=x86-64-v4"):
            for _ in range(FAULTS):
                planted = plant_fault(pair.scheduled, rng)
                if planted is not None:
                    function, kind = planted
                    is_missed = KernelPair(pair.definition, function).verify().status == EQUAL
                    assert not is_missed or is_harmless(pair.definition, function), f"{kind}: {text}\n{function}"


def is_harmless(definition: KernelDefinition, function: ir.Operation) -> bool:
    """Return whether a kernel computes what its definition does with 64-bit floats, up to their rounding."""
    arithmetic = DoubleArithmetic()
    for number, scale in enumerate((1.0, 1.0, 1000.0)):
        expected = definition.results(arithmetic, RoundSettings(number, scale=scale))
        scheduled = KernelPair(definition, function).compile_scheduled(arithmetic)
        memory = RandomMemory(arithmetic, 100 + number)
        actual, is_intact = run_function(scheduled, memory, expected.inputs, {}, expected.table)
        pairs = [(a.planes[0], b.planes[0]) for a, b in zip(expected.outputs, actual, strict=True)]
        if not is_intact or not all(_are_close(a, b) for a, b in pairs):
            return False
    return True


def _are_close(expected: np.ndarray, actual: np.ndarray) -> bool:
    """Return whether results are equal up to rounding, as one of the greatest result."""
    greatest = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
    return np.allclose(actual, expected, ROUNDING, ROUNDING * greatest, equal_nan=True)


def test_sums_in_another_order_are_close() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((64, 3000)) * 1000, rng.standard_normal((3000, 40)) * 1000
    forward, backward = x @ w, x[:, ::-1] @ w[::-1]
    assert _are_close(forward, backward) and not _are_close(forward, forward + np.eye(64, 40))
