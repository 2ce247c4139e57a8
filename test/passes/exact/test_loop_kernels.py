"""Kernels that are written as loops, compared with what their operators mean in numpy."""

from __future__ import annotations

import random

import pytest
from planted_faults import plant_fault
from scheduled_pairs import kernel_pairs

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.exact.compare import KernelPair
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
}  # fmt: skip


def _text(operator: str) -> str:
    attributes, operands, results = PROGRAMS[operator]
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
