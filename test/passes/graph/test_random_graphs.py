"""Random graphs give the same numbers compiled and evaluated: no pass changes results."""

from __future__ import annotations

import numpy as np
import pytest

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.testing.random_graphs import finish, new_graph
from mirlo.testing.random_operators import grow

FLOATS, INTEGERS = 180, 60


def compiled(seed: int, element: str) -> tuple[list[str], list[np.ndarray], list[np.ndarray]]:
    """Descriptions, the results of the compiled graph, and those that it must give."""
    with make_context(), ir.Location.unknown():
        graph = new_graph(seed, element)
        with ir.InsertionPoint(graph.function.entry_block):
            grow(graph, count=4 + seed % 12)
            expected = finish(graph)
        assert graph.module.operation.verify()
        executable = mirlo.compile(graph.module, params=graph.params, opt_level=1)
    made = executable(*graph.inputs)
    return graph.described, list(made) if isinstance(made, (tuple, list)) else [made], expected


@pytest.mark.sample(36)
@pytest.mark.parametrize("seed", range(FLOATS))
def test_floats(seed: int) -> None:
    described, results, expected = compiled(seed, "f32")
    for result, wanted in zip(results, expected, strict=True):
        scale = max(1.0, float(np.abs(wanted).max(initial=0)))
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=2e-4 * scale, err_msg="\n".join(described))


@pytest.mark.sample(12)
@pytest.mark.parametrize("seed", range(INTEGERS))
def test_integers(seed: int) -> None:
    described, results, expected = compiled(seed, "i32")
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, wanted, err_msg="\n".join(described))
