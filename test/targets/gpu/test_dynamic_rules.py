"""Kernels with dims of run time have the schedule of their kind, not one thread for each element."""

import itertools

import pytest

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.tools.explain.model import explain_model

TARGETS = {"nvvm{chip=sm_80}": "products", "spirv": "stages"}
DYNAMIC = [dims for dims in itertools.product((True, False), repeat=3) if any(dims)]
"""Whether the rows, the reduction and the columns of a product are dynamic."""


def _product(rows: bool, depth: bool, columns: bool) -> str:
    m, k, n = (name if is_dynamic else 64 for name, is_dynamic in (("m", rows), ("k", depth), ("n", columns)))

    def kind(*dims: str | int) -> str:
        shape = "x".join("?" if isinstance(dim, str) else str(dim) for dim in dims)
        named = ", ".join(f'"{dim}"' if isinstance(dim, str) else str(dim) for dim in dims)
        return f"tensor<{shape}xf16{f', #relax.dims<[{named}]>' if '?' in shape else ''}>"

    return f"""
func.func @main(%x: {kind(m, k)}, %w: {kind(k, n)}) -> {kind(m, n)} {{
  %0 = "relax.matmul"(%x, %w) : ({kind(m, k)}, {kind(k, n)}) -> {kind(m, n)}
  return %0 : {kind(m, n)}
}}"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dynamic", DYNAMIC, ids=str)
def test_products(target: str, dynamic: tuple[bool, bool, bool]) -> None:
    with make_context(), ir.Location.unknown():
        explanation = explain_model(ir.Module.parse(_product(*dynamic)), target)
    (kernel,) = explanation.kernels
    assert kernel.schedule is not None and kernel.schedule.rule.name == TARGETS[target], kernel.schedule
