"""Whatever the graph and the patterns: no cycle, the same numbers, the same result each time, undone by one pass."""

from __future__ import annotations

import random

import numpy as np
import pytest
from random_placements import evaluate, random_graph, random_tables

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.byoc.partition import Partitioner, RegionLimits
from mirlo.passes.byoc.records import Placement
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session

GRAPHS, CHUNK = 2000, 100


def divided(seed: int, text: str) -> tuple[ir.Module, Placement]:
    """Return the graph of a seed, partitioned by patterns of this seed."""
    rng = random.Random(seed)
    tables = random_tables(rng)
    limits = RegionLimits(
        max_nodes=rng.choice([0, 0, 3, 6]), max_regions=rng.choice([0, 0, 2]), min_nodes=rng.choice([0, 2])
    )
    module = ir.Module.parse(text)
    placement = Partitioner(module.operation, Session(), tables, limits, rng.random() < 0.8).run()
    return module, placement


@pytest.mark.sample(24)
@pytest.mark.parametrize("chunk", range(GRAPHS // CHUNK))
def test_partitioning_keeps_the_meaning(chunk: int) -> None:
    taken = 0
    with make_context(), ir.Location.unknown():
        for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
            rng = random.Random(-seed)
            text = random_graph(rng)
            module, placement = divided(seed, text)
            taken += len(placement.taken)
            inputs = [np.float32([rng.uniform(-2, 2) for _ in range(4)]) for _ in range(3)]
            original = ir.Module.parse(text)
            inputs = inputs[: len(original.body.operations[0].regions[0].blocks[0].arguments)]
            expected = evaluate(original.operation, inputs)

            assert module.operation.verify(), f"seed {seed}"
            assert_equal(evaluate(module.operation, inputs), expected, seed)
            nodes = [node for composite in placement.taken for node in composite.nodes]
            assert len(nodes) == len(set(nodes)), f"seed {seed}: a node is taken twice"

            Pipeline("outline-external,verify-calls").run(module)
            assert_equal(evaluate(module.operation, inputs), expected, seed)
            again, records = divided(seed, text)
            Pipeline("outline-external").run(again)
            assert str(again) == str(module), f"seed {seed} is not deterministic"
            assert records == placement, f"seed {seed}: the records are not deterministic"

            Pipeline("inline-external").run(module)
            assert "call" not in str(module), f"seed {seed}: something was not put back"
            assert_equal(evaluate(module.operation, inputs), expected, seed)
    assert taken > CHUNK, "the patterns of this test hardly match anything"


def assert_equal(found: list[np.ndarray], expected: list[np.ndarray], seed: int) -> None:
    assert len(found) == len(expected)
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(left, right, err_msg=f"seed {seed}")
