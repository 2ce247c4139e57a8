"""Random graphs whose products are divided give the numbers that they give whole; ranks are threads of this process."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.driver.ranks import RankedModel
from mirlo.runtime import external
from mirlo.runtime.external import ExternalArtifact, ExternalFunctions, LoadContext
from mirlo.targets.collectives.program import RankExchange, RankProgram, read_programs

sys.path.insert(0, str(Path(__file__).parents[1] / "graph"))
from random_graphs import finish, new_graph  # noqa: E402
from random_operators import grow  # noqa: E402

FLOATS, INTEGERS = 120, 40


class ThreadGroup:
    """Ranks of one process: what each has is in a list."""

    def __init__(self, ranks: int) -> None:
        self.arrays: list[np.ndarray] = [np.empty(0)] * ranks
        self.barrier = threading.Barrier(ranks, timeout=20)
        self.rank = threading.local()

    def exchange(self, number: int, step: RankExchange, x: np.ndarray, out: np.ndarray) -> None:
        self.arrays[self.rank.number] = x
        self.barrier.wait()
        step.combine(self.arrays, self.rank.number, out)
        self.barrier.wait()


GROUPS: dict[int, ThreadGroup] = {}


def load_threads(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
    """Load a transport between threads."""
    functions = {}
    for name, program in read_programs(artifact.metadata, artifact.functions).items():

        def call(*tensors: np.ndarray, program: RankProgram = program) -> None:
            group = GROUPS[program.exchanges[0].ranks]
            program.run(tensors, group.rank.number, group.exchange)

        functions[name] = call
    return ExternalFunctions(functions)


@pytest.fixture(autouse=True)
def threads_as_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give code generators the transport of this file, for one test."""
    monkeypatch.setitem(external._LOADERS, "threads", load_threads)


def _compare(seed: int, element: str, ranks: int) -> None:
    with make_context(), ir.Location.name("node"):
        graph = new_graph(seed, element)
        with ir.InsertionPoint(graph.function.entry_block):
            grow(graph, count=4 + seed % 12)
            expected = finish(graph)
        plan = [["*=column"], ["*=row"], []][seed % 3]
        model = mirlo.compile(
            graph.module, "collectives{transport=threads},llvm", params=graph.params, opt_level=0, cache=False,
            ranks=ranks, rank_plan=plan,
        )  # fmt: skip
    assert isinstance(model, RankedModel)
    group = GROUPS[ranks] = ThreadGroup(ranks)

    def run(rank: int) -> list[np.ndarray]:
        group.rank.number = rank
        results = model.executables[rank](*graph.inputs)
        return list(results) if isinstance(results, (tuple, list)) else [results]

    with ThreadPoolExecutor(ranks) as pool:
        for results in pool.map(run, range(ranks)):
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
