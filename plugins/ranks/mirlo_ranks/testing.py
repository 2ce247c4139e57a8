"""Functions and models on several ranks, for tests: forks of this process, or its threads.

results = run_ranks(function, 2)                                  # forks, each with its rank in the environment
model = mirlo.compile(source, TARGET, ranks=2, rank_plan=plan)    # a transport between threads
results = run_threads(model, lambda rank: operands)
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from mirlo.extend.runtime import ExternalArtifact, ExternalFunctions, LoadContext, register_external_loader
from mirlo_ranks.collectives.program import RankExchange, RankProgram, read_programs
from mirlo_ranks.strategy import RankedModel

SECONDS = 300
"""Seconds that a test waits for a rank."""
TARGET = "collectives{transport=threads},llvm"


def run_ranks(
    function: Callable[[int], object], ranks: int, without: int | None = None, **environment: str
) -> list[Any]:
    """Return what each rank's call returned, or the exception that it raised; None for a rank that died.

    The result of the rank `without`, which may never return, is None.
    """
    if sys.platform == "win32":
        raise OSError("this system has no forks")
    context = multiprocessing.get_context("fork")
    folder = tempfile.mkdtemp(prefix="ranks")  # paths of sockets must be short
    variables = {"MIRLO_RANKS_FOLDER": folder, "WORLD_SIZE": str(ranks), **environment}
    started = []
    try:
        for rank in range(ranks):
            reading, writing = context.Pipe(duplex=False)
            arguments = (function, rank, writing, {**variables, "RANK": str(rank)})
            process = context.Process(target=_rank, args=arguments, daemon=True)
            process.start()
            writing.close()
            started.append((process, reading))
        return [None if rank == without else _result(reading) for rank, (_, reading) in enumerate(started)]
    finally:
        for process, reading in started:
            process.kill()
            process.join()
            reading.close()
        shutil.rmtree(folder)


def _rank(function: Callable[[int], object], rank: int, writing: Connection, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    try:
        result: object = function(rank)
    except Exception as error:
        result = error
    writing.send(result)


def _result(reading: Connection) -> Any:
    try:
        return reading.recv() if reading.poll(SECONDS) else TimeoutError(f"a rank took {SECONDS} s")
    except EOFError:
        return None


class ThreadGroup:
    """Ranks as threads of one process, which exchange tensors through a list."""

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


register_external_loader("threads", _load)


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
