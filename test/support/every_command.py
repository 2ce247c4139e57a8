"""All commands that open a model, in this process, and which of them end in an internal error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from mirlo.tools.cli import main

COMMANDS: dict[str, tuple[str, ...]] = {
    "info": (), "check": (), "import": ("-o", "out.mlir"), "explain": (), "compile": ("-o", "out.mirlo"),
    "partition": ("--target", "onednn,llvm"), "explorer": ("-o", "out.html"), "run": (), "verify": (),
    "quantize": ("-o", "out.onnx"),
}  # fmt: skip
"""Each with its arguments; `explorer` measures the model that `compile` has put into the cache."""


def run_command(command: str, model: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run a command, which writes to the folder; return its exit code and its standard error."""
    code = main([command, str(model), *(str(folder / each) if "." in each else each for each in COMMANDS[command])])
    return code, capsys.readouterr().err


def internal_errors(
    model: Path, folder: Path, capsys: pytest.CaptureFixture[str], commands: Iterable[str] = tuple(COMMANDS)
) -> Iterator[tuple[str, str]]:
    """Yield those of the commands that end in an error that is not the user's, with what they print.

    Errors of users are an operator that is not supported, or a model that needs sizes.
    """
    for command in commands:
        code, errors = run_command(command, model, folder, capsys)
        if code not in (0, 1) or "internal error" in errors or "this is a bug" in errors:
            yield command, errors
