"""Runners for tests: built once, started on a free port of the loopback interface."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mirlo.runtime.remote.board import Board, LinkModel
from mirlo.runtime.remote.wire import RunnerAddress, parse_address
from mirlo.targets.llvm.library.build import link_model

TOKEN = "a token for tests"


@dataclass
class StartedRunner:
    """A runner, and its standard error once it has ended."""

    address: RunnerAddress
    process: subprocess.Popen[str]
    errors: str = ""

    def board(self, link: LinkModel = link_model, token: str = TOKEN) -> Board:
        """Begin a session."""
        return Board(self.address, token.encode(), link)


@contextmanager
def started(command: Sequence[str | Path], folder: Path, *flags: str) -> Iterator[StartedRunner]:
    """Start a runner with a folder for models; it must leave no files there, and must end without a signal."""
    environment = {**os.environ, "MIRLO_REMOTE_TOKEN": TOKEN}
    process = subprocess.Popen(
        [*map(str, command), "--folder", str(folder), *flags],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.fullmatch(r"listening on (\S+)\n", line)
        assert match is not None, process.communicate(timeout=10)[1]
        runner = StartedRunner(parse_address(match[1]), process)
        yield runner
    finally:
        process.terminate()
        try:
            errors = process.communicate(timeout=20)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    runner.errors = errors
    assert not list(folder.iterdir())
