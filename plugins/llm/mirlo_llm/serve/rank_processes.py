"""The other ranks of a served model, processes that start and end with the server."""

from __future__ import annotations

import os
import pickle
import secrets
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mirlo.extend.ranks import (
    PERIOD,
    HeartbeatMonitor,
    RankError,
    create_heartbeat_memory,
    heartbeat_seconds,
    rank_place,
    stopped_error,
)
from mirlo.extend.runtime import MirloError, fresh_command, wait_readable, watch_process
from mirlo_llm.generate.led_caches import CacheOperation
from mirlo_llm.serve.errors import ServeError
from mirlo_llm.serve.rank_process import LOADED, RankModel

VARIABLES = ("MIRLO_RANK", "MIRLO_RANKS", "MIRLO_JOB")
"""Environment variables that identify this process as a rank."""
EXPLAIN_SECONDS = 1.0
"""Seconds within which the end of a rank is noticed after a failed exchange: some heartbeat periods."""
STOP_SECONDS = 10.0
"""Seconds for a rank to end at shutdown."""


class RankProcesses:
    """The ranks from 1 on; this process is rank 0."""

    def __init__(self, path: Path, options: Mapping[str, Any]) -> None:
        """Start processes that load a language model with these options of `mirlo.generate.load`."""
        ranks: int = options["ranks"]
        self.problem: RankError | None = None
        """Why the ranks compute nothing any more."""
        self.on_end: Callable[[RankError], None] = lambda problem: None
        """Called in a thread of its own when a rank has ended, or was ended as its process had been stopped."""
        self._is_stopping, self._heartbeat_seconds = False, heartbeat_seconds()
        self._ended = threading.Event()
        job = f"serve-{os.getpid()}-{secrets.token_hex(8)}"
        os.environ.update(zip(VARIABLES, ("0", str(ranks), job), strict=True))
        self._processes: list[subprocess.Popen[bytes]] = []
        for rank in range(1, ranks):
            heartbeat = create_heartbeat_memory()
            process = _start(rank, heartbeat)
            self._processes.append(process)
            monitor = HeartbeatMonitor(heartbeat, self._heartbeat_seconds)
            name = f"rank {rank} of {path.name}"
            threading.Thread(target=self._watch, args=(rank, process, monitor), name=name, daemon=True).start()
        self._write(RankModel(str(path), dict(options)))

    def wait_until_loaded(self) -> None:
        """Wait for all ranks to load their parts; raise an error if one ends."""
        for rank, process in enumerate(self._processes, 1):
            assert process.stdout is not None  # it is a pipe
            if process.stdout.readline() != LOADED:
                raise self.problem or _ended(rank, process)
            process.stdout.close()

    def send(self, operation: CacheOperation) -> None:
        """Send an operation to all ranks; raise an error if one has ended."""
        if self.problem is not None:
            raise self.problem
        self._write(operation)

    def explain(self, error: MirloError) -> MirloError:
        """Return the reason why a step failed: the end of a rank, which may be noticed a moment later, or the error."""
        self._ended.wait(EXPLAIN_SECONDS)
        return self.problem or error

    def stop(self) -> None:
        """End the processes."""
        self._is_stopping = True
        for process in self._processes:
            if process.stdin is not None:
                with suppress(OSError):  # of what was not sent to a process that has ended
                    process.stdin.close()
        for process in self._processes:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for name in VARIABLES:
            os.environ.pop(name, None)

    def _write(self, message: RankModel | CacheOperation) -> None:
        content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        for rank, process in enumerate(self._processes, 1):
            assert process.stdin is not None  # it is a pipe
            try:
                process.stdin.write(content)
                process.stdin.flush()
            except (OSError, ValueError):  # also of a pipe that was closed
                raise self.problem or _ended(rank, process) from None

    def _watch(self, rank: int, process: subprocess.Popen[bytes], monitor: HeartbeatMonitor) -> None:
        """Wait for the end of a rank, and kill it if its process is stopped, since the others would wait for it."""
        watch = watch_process(process.pid)
        while not _ends(process, watch, PERIOD):
            if monitor.has_begun and monitor.is_silent():
                self._end(stopped_error(rank, monitor.seconds, "it was ended; start the server again"))
                process.kill()
        if watch is not None:
            os.close(watch)
        self._end(_ended(rank, process))

    def _end(self, problem: RankError) -> None:
        if not self._is_stopping and self.problem is None:
            self.problem = problem
            self._ended.set()
            self.on_end(problem)


def _ends(process: subprocess.Popen[bytes], watch: int | None, seconds: float) -> bool:
    """Return whether a process ends within some seconds; `watch` becomes readable when it does."""
    with suppress(subprocess.TimeoutExpired):
        if watch is not None:
            wait_readable((watch,), seconds)
            seconds = 0
        process.wait(seconds)
        return True
    return False


def _start(rank: int, heartbeat: int) -> subprocess.Popen[bytes]:
    """Start a rank, which writes its heartbeat to the memory of a descriptor."""
    command = fresh_command("mirlo_llm.serve.rank_process", str(heartbeat))
    environment = {**os.environ, VARIABLES[0]: str(rank)}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, pass_fds=[heartbeat])


def require_no_ranks() -> None:
    """Raise an error in a process that was started as a rank."""
    if rank_place() is not None:
        raise ServeError(
            "--ranks: the server starts its other ranks itself: start it alone, without mpirun or torchrun"
        )


def _ended(rank: int, process: subprocess.Popen[bytes]) -> RankError:
    status = process.poll()
    how = "" if status is None else f" by signal {-status}" if status < 0 else f" with status {status}"
    return RankError(f"rank {rank} of the model has ended{how}: its own output says why; start the server again")
