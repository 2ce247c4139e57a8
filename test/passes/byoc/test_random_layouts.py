"""Layouts of random regions of random graphs on images: the same numbers, however permutes move and cancel."""

from __future__ import annotations

import random

import numpy as np
import pytest
from random_placements import evaluate, random_image_graph, random_padded_chain

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.extend.codegen import is_const, is_op, repeat, wildcard
from mirlo.passes.byoc.hoist_layouts import LayoutRecord
from mirlo.passes.byoc.partition import Partitioner, RegionLimits
from mirlo.passes.byoc.tables import entry_of
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session

GRAPHS = 300


def random_rows(rng: random.Random) -> list[tuple]:
    """Convolutions with some of what follows them, and perhaps other operators."""
    conv = is_op("relax.conv")(wildcard(), is_const())
    follow = rng.sample(["relax.relu", "relax.tanh", "relax.negative"], 2)

    def step(x):
        return is_op(*follow)(x) | is_op("relax.add")(x, wildcard())

    rows = [("conv", repeat(conv, step, most=rng.randint(1, 3)))]
    if rng.random() < 0.5:
        rows.append(("pointwise", is_op("relax.relu", "relax.add", "relax.maximum")))
    if rng.random() < 0.3:
        rows.append(("pool", is_op("relax.max_pool")))
    return rows


@pytest.mark.sample(0)
def test_numbers_stay() -> None:
    cancelled = 0
    with make_context(), ir.Location.unknown():
        for seed in range(GRAPHS):
            rng = random.Random(seed)
            text, weights = random_image_graph(rng)
            session = Session()
            for name, array in weights.items():
                session.params.add(name, array)
            module = ir.Module.parse(text)
            image = np.float32([[[[rng.uniform(-1, 1) for _ in range(4)] for _ in range(4)] for _ in range(2)]])
            expected = evaluate(module.operation, [image], session.params)

            tables = {"t": [entry_of("t", row) for row in random_rows(rng)]}
            Partitioner(module.operation, session, tables, RegionLimits(max_nodes=rng.choice([0, 0, 4]))).run()
            layouts = rng.choice(["relax.conv=N*C:O*I", "relax.conv=N*C:*IO,relax.max_pool=N*C", "relax.conv=NC*:O*I"])
            inner = f"convert-layout{{layouts={{{layouts}}}}},{rng.choice(['', 'hoist-layouts,'])}fold-constant"
            steps = f"outline-external,run-on-external{{pipeline={{{inner}}}}},hoist-layouts"
            Pipeline(f"{steps},fold-constant,verify-calls").run(module, session)
            check(module, session, image, expected, seed)
            cancelled += sum(note.cancelled for note in session.notes if isinstance(note, LayoutRecord))

            Pipeline("inline-external,fold-constant,convert-layout,remove-dead").run(module, session)
            check(module, session, image, expected, seed)
    assert cancelled > GRAPHS, "hardly any permute met another one"


@pytest.mark.sample(0)
def test_a_chain_has_permutes_at_its_edges_only() -> None:
    passing = is_op("relax.pad", "relax.max_pool", "relax.relu", "relax.add")
    pattern = is_op("relax.conv")(repeat(wildcard(), lambda x: passing(x, ...), least=1, most=3), is_const())
    with make_context(), ir.Location.unknown():
        for seed in range(60):
            text, weights = random_padded_chain(random.Random(seed))
            session = Session()
            for name, array in weights.items():
                session.params.add(name, array)
            module = ir.Module.parse(text)
            image = np.random.default_rng(seed).standard_normal((1, 2, 4, 4), np.float32)
            expected = evaluate(module.operation, [image], session.params)
            Partitioner(module.operation, session, {"t": [entry_of("t", ("conv", pattern))]}, RegionLimits()).run()
            layouts = "run-on-external{pipeline={convert-layout{layouts={relax.conv=N*C:O*I}},fold-constant}}"
            Pipeline(f"outline-external,{layouts},hoist-layouts,verify-calls").run(module, session)
            check(module, session, image, expected, seed)
            outside, _, inside = str(module).partition("module @")
            assert "relax.permute" not in inside, f"seed {seed}"
            assert outside.count("relax.permute") == 2, f"seed {seed}"


def check(module: ir.Module, session: Session, image: np.ndarray, expected: list[np.ndarray], seed: int) -> None:
    for made, wanted in zip(evaluate(module.operation, [image], session.params), expected, strict=True):
        np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-4, err_msg=f"seed {seed}")
