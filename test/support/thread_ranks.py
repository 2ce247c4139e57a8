"""Ranks that are threads of this process, over a transport between threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from mirlo_ranks.collectives.program import RankExchange, RankProgram, read_programs
from mirlo_ranks.strategy import RankedModel

from mirlo.extend.runtime import ExternalArtifact, ExternalFunctions, LoadContext
from mirlo.runtime import external

TARGET = "collectives{transport=threads},llvm"


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


_GROUPS: dict[int, ThreadGroup] = {}


def _load(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
    functions = {}
    for name, program in read_programs(artifact.metadata, artifact.functions).items():

        def call(*tensors: np.ndarray, program: RankProgram = program) -> None:
            group = _GROUPS[program.exchanges[0].ranks]
            program.run(tensors, group.rank.number, group.exchange)

        functions[name] = call
    return ExternalFunctions(functions)


@contextmanager
def thread_transport() -> Iterator[None]:
    """Give code generators the transport, for a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(external._LOADERS, "threads", _load)
        yield


def run_threads(model: Any, operands: Callable[[int], list[np.ndarray]]) -> list[list[np.ndarray]]:
    """Return the results of each rank for its operands."""
    assert isinstance(model, RankedModel)
    ranks = len(model.executables)
    group = _GROUPS[ranks] = ThreadGroup(ranks)

    def run(rank: int) -> list[np.ndarray]:
        group.rank.number = rank
        results = model.executables[rank](*operands(rank))
        return list(results) if isinstance(results, (tuple, list)) else [results]

    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(run, range(ranks)))
