"""Models in programs without Python: a library, compiled with a program in C that runs it once."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mirlo.runtime.artifact import Artifact
from mirlo.runtime.errors import MirloError
from mirlo.runtime.files import write_regular
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.tensor_bytes import read_tensors, tensor_bytes
from mirlo.targets.c.compiler import find_compiler
from mirlo.targets.llvm.library.build import write_library

SOURCE = Path(__file__).with_name("run_library.c")
NAME = "model"
FLAGS = ("-std=gnu99", "-O1", "-Wall", "-Wno-missing-field-initializers")


class ProgramFailed(MirloError):
    """A program in C cannot be made, or its model reports an error."""

    error_code = "MIR0712"
    remedy = "See the output of the program that used the library."


def run_library(
    artifact: Artifact, store: ParameterStore, inputs: Mapping[str, np.ndarray],
    sources: Sequence[str | os.PathLike[str]] = (), shared: bool = False,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Make a program of a model and run it once; `sources` are C files that are linked too, such as drivers.

    `shared` lets the program open a shared library, in place of linking object files.
    """
    with tempfile.TemporaryDirectory(prefix="mirlo-program-") as name:
        folder = Path(name)
        written = write_library(artifact, store, folder, NAME, shared=shared)
        where = [f"-DMODEL=mirlo_model_{NAME}", *(str(path) for path in written if path.suffix == ".o")]
        if shared:
            # The program's own functions are visible to the library.
            pool = [str(path) for path in written if path.name == "mirlo_pool.o"]
            where = [f'-DLIBRARY="{written[0]}"', f'-DNAME="{NAME}"', "-rdynamic", *pool]
        program = folder / "program"
        files = [str(SOURCE), str(folder / "mirlo.c"), *(os.fspath(source) for source in sources)]
        command = [find_compiler(), *FLAGS, f"-I{folder}", *files, *where, "-o", str(program)]
        _run([*command, "-lm", "-ldl", "-lpthread"])
        write_regular(folder / "inputs", tensor_bytes(inputs[spec.name] for spec in artifact.inputs))
        _run([str(program), str(folder / "inputs"), str(folder / "outputs")])
        return read_tensors(artifact.outputs, (folder / "outputs").read_bytes())[0]


def _run(command: Sequence[str]) -> None:
    # Nothing of the environment tells the program where a Python would be.
    environment = {"PATH": os.environ.get("PATH", "")}
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, env=environment)
    if done.returncode:
        lines = "\n".join(done.stderr.strip().splitlines()[:10])
        raise ProgramFailed(f"'{Path(command[0]).name}' ended with code {done.returncode}: {lines}")
