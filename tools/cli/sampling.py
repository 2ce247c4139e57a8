"""Samples that ship with Mirlo, as the model of a command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

from mirlo.tools.cli.arguments import Arguments


def check_model(arguments: Arguments, refuse: Callable[[str], NoReturn]) -> None:
    """Refuse a command line without a model, or with two."""
    if arguments.model is None and arguments.sample is None:
        refuse("give the file of a model, or --sample NAME for one that ships with Mirlo")
    if arguments.model is not None and arguments.sample is not None:
        refuse(f"{arguments.model} and --sample {arguments.sample}: give one model")


def use_sample(arguments: Arguments) -> None:
    """Make the sample that was asked for the model of the command."""
    from mirlo.tools.samples import path

    assert arguments.sample is not None
    arguments.model = str(path(arguments.sample))
    if arguments.verbose or sys.stderr.isatty():
        text = f"sample {arguments.sample}, an exported graph with weights from a seed: {arguments.model}"
        print(text, file=sys.stderr)
