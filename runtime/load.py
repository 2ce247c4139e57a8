"""`mirlo.load`: compiled models from `.mirlo` files of every kind."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mirlo.runtime import artifact as artifacts
from mirlo.runtime.entry_points import offered
from mirlo.runtime.errors import ArtifactError, PackedFunctionError
from mirlo.runtime.executable import Executable
from mirlo.runtime.locks import UNCUT

if TYPE_CHECKING:
    from mirlo.runtime.program import Program


def load(path: str | os.PathLike[str], device: int | None = None) -> Executable | Program:
    """Load a `.mirlo` file: nothing is compiled, and the weights are mapped, not read.

    `device` is the number of the GPU to run on, if there are several.
    """
    with UNCUT:
        return _load(path, device)


GROUP = "mirlo.model_files"
"""The entry point group of functions from a path to a file that is loaded in place of it, or None; they are called for
a path at which there is no file."""


def _file_of_package(path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return the file that a package has written for a path, or the path itself."""
    files = (entry.load()(path) for entry in offered(GROUP))
    return next((file for file in files if file is not None), path)


def _load(path: str | os.PathLike[str], device: int | None) -> Executable | Program:
    path = path if os.path.exists(path) else _file_of_package(path)
    artifact, store = artifacts.load(path)
    try:
        if artifact.loader == "program":
            if device is not None:
                raise ArtifactError(f"a program of several parts runs on the CPU, found device={device}")
            from mirlo.runtime.program import Program
            from mirlo.runtime.program_file import read_program

            return Program(read_program(path, artifact, store), store)
        if artifact.loader == "specialized":
            from mirlo.runtime.specialized import specialized_of

            return specialized_of(path, artifact, store, device)
        if artifact.loader == "fat":
            from mirlo.runtime.fat import fat_of

            return fat_of(path, artifact, store, device)
        return Executable(artifact, store, device)
    except (ArtifactError, PackedFunctionError) as problem:
        raise type(problem)(f"{path}: {problem}") from None
