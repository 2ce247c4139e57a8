"""Samples that ship with Mirlo, as the model of a command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

from mirlo.tools.cli.arguments import Arguments


def check_model(arguments: Arguments, refuse: Callable[[str], NoReturn]) -> None:
    """Refuse a command line without a model, or with two."""
    model = getattr(arguments, arguments.model_dest)
    if not model and arguments.sample is None and arguments.needs_model:
        refuse("give the file of a model, or --sample NAME for one that ships with Mirlo")
    if model and arguments.sample is not None:
        listed = " and ".join([model] if isinstance(model, str) else model)
        refuse(f"{listed} and --sample {arguments.sample}: give one model")


def use_sample(arguments: Arguments) -> None:
    """Write the requested sample, and use it as the model of the command."""
    from mirlo.tools.samples import path

    assert arguments.sample is not None
    model = str(path(arguments.sample))
    is_list = isinstance(getattr(arguments, arguments.model_dest), list)
    setattr(arguments, arguments.model_dest, [model] if is_list else model)
    if arguments.verbose or sys.stderr.isatty():
        text = f"sample {arguments.sample}, an exported graph with weights from a seed: {model}"
        print(text, file=sys.stderr)
