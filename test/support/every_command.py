"""All commands that open a model, in this process, and which of them end in an internal error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from mirlo.benchmarks.client_commands import COMMANDS, command_line, is_internal_error
from mirlo.tools.cli import main


def run_command(command: str, model: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run a command, which writes to the folder; return its exit code and its standard error."""
    code = main(command_line(command, model, folder))
    return code, capsys.readouterr().err


def internal_errors(
    model: Path, folder: Path, capsys: pytest.CaptureFixture[str], commands: Iterable[str] = tuple(COMMANDS)
) -> Iterator[tuple[str, str]]:
    """Yield those of the commands that end in an error that is not the user's, with what they print."""
    for command in commands:
        code, errors = run_command(command, model, folder, capsys)
        if is_internal_error(code, errors):
            yield command, errors
