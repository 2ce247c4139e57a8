"""Functions that are run by several ranks: forks of this process, each with its rank in the environment."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

SECONDS = 60
"""Seconds that a test waits for a rank."""


def run_ranks(
    function: Callable[[int], object], ranks: int, without: int | None = None, **environment: str
) -> list[Any]:
    """Return what each rank's call returned, or the exception that it raised; None for a rank that died.

    The result of the rank `without` is None: it may never come.
    """
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
