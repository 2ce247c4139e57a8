"""Random graphs give the same results divided and whole; ranks are threads of this process."""

from __future__ import annotations

import numpy as np
import pytest
from mirlo_ranks.testing import TARGET, run_threads

import mirlo
from mirlo.extend.frontend import make_context
from mirlo.extend.passes import ir
from mirlo.testing.random_graphs import finish, new_graph  # noqa: E402
from mirlo.testing.random_operators import grow  # noqa: E402

FLOATS, INTEGERS = 120, 40


def _compare(seed: int, element: str, ranks: int) -> None:
    with make_context(), ir.Location.name("node"):
        graph = new_graph(seed, element)
        with ir.InsertionPoint(graph.function.entry_block):
            grow(graph, count=4 + seed % 12)
            expected = finish(graph)
        plan = [["*=column"], ["*=row"], []][seed % 3]
        model = mirlo.compile(
            graph.module, TARGET, params=graph.params, opt_level=0, cache=False,
            ranks=ranks, rank_plan=plan,
        )  # fmt: skip
    for results in run_threads(model, lambda rank: graph.inputs):
        for result, wanted in zip(results, expected, strict=True):
            scale = max(1.0, float(np.abs(wanted).max(initial=0)))
            tolerance = {"rtol": 1e-4, "atol": 2e-4 * scale} if element == "f32" else {"rtol": 0, "atol": 0}
            np.testing.assert_allclose(result, wanted, **tolerance, err_msg="\n".join(graph.described))


@pytest.mark.sample(40)
@pytest.mark.parametrize("seed", range(FLOATS))
def test_floats(seed: int) -> None:
    _compare(seed, "f32", 2 + 2 * (seed % 2))


@pytest.mark.sample(40)
@pytest.mark.parametrize("seed", range(INTEGERS))
def test_integers(seed: int) -> None:
    _compare(seed, "i32", 2)
