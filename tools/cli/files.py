"""Files on the command line: kinds of models, arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from mirlo.runtime.files import open_regular, replacing
from mirlo.runtime.names import file_name
from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.errors import CommandError, NotAFile

if TYPE_CHECKING:
    import numpy as np


def load_plugins(names: list[str]) -> None:
    """Import the plug-ins of the command line; report their errors as theirs."""
    from mirlo.passes.registry import load_plugin

    for name in names:
        try:
            load_plugin(name)
        except Exception as error:
            raise CommandError(f"cannot load the plug-in '{name}': {type(error).__name__}: {error}") from error


def require_file(path: str) -> None:
    """Raise an error unless there is such a file."""
    if not Path(path).is_file():
        raise NotAFile(f"'{path}' {'is not a file' if Path(path).exists() else 'does not exist'}")


def is_compiled(path: str) -> bool:
    """Return whether a file is, or claims to be, a compiled model."""
    from mirlo.runtime.artifact import MODEL_FILE
    from mirlo.runtime.container import has_magic

    return Path(path).suffix == ".mirlo" or has_magic(path, MODEL_FILE)


def read_array(path: str, name: str) -> np.ndarray:
    """Read the array in a `.npy` file, for the input of this name."""
    import numpy as np

    try:
        with open_regular(path) as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        raise CommandError(f"input '{name}': cannot read '{path}': {error.strerror or error}") from error
    except Exception as error:  # numpy parses the header as Python, which raises many kinds
        raise CommandError(
            f"input '{name}': '{path}' is not an array that numpy.save wrote, or it is damaged: {str(error):.200}"
        ) from error


def write_arrays(folder: str, arrays: dict[str, np.ndarray]) -> list[Path]:
    """Write arrays to `.npy` files named for them."""
    import numpy as np

    target = Path(folder)
    paths: list[Path] = []
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, array in arrays.items():
            path = target / f"{_file_name(name, {path.stem for path in paths})}.npy"
            with replacing(path) as file:
                np.save(file, array)
            paths.append(path)
    except OSError as error:
        raise CommandError(f"cannot write outputs to '{folder}': {error.strerror or error}") from error
    return paths


def _file_name(name: str, taken: set[str]) -> str:
    """Return a name that any file system accepts: names of tensors may contain slashes, colons and worse."""
    base = file_name(name) or "output"
    unique, count = base, 0
    while unique in taken:
        count += 1
        unique = f"{base}_{count}"
    return unique


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
