"""Random graphs give the same numbers compiled as evaluated: no pass of the pipeline changes what is computed."""

from __future__ import annotations

import numpy as np
import pytest
from random_graphs import finish, new_graph
from random_operators import grow

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context

SEEDS = 200


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_graph(seed: int) -> None:
    with make_context(), ir.Location.unknown():
        graph = new_graph(seed)
        with ir.InsertionPoint(graph.function.entry_block):
            grow(graph, count=4 + seed % 12)
            expected = finish(graph)
        assert graph.module.operation.verify()
        executable = mirlo.compile(graph.module, params=graph.params, opt_level=1)
    made = executable(*graph.inputs)
    results = made if isinstance(made, (tuple, list)) else [made]
    for result, wanted in zip(results, expected, strict=True):
        scale = max(1.0, float(np.abs(wanted).max(initial=0)))
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=2e-4 * scale, err_msg="\n".join(graph.described))
