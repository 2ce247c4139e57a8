"""Programs in C that run a model, for tests: compiled, linked, run, and their outputs read back."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mirlo
from mirlo import R
from mirlo.driver.code import compile_code
from mirlo.driver.request import CompileRequest
from mirlo.runtime.artifact import Artifact
from mirlo.runtime.dtypes import numpy_dtype
from mirlo.targets.c.library import write_source
from mirlo.targets.llvm.library.build import write_library
from mirlo.targets.llvm.library.description import library_name

SOURCE = Path(__file__).with_name("run_model.c")
FLAGS = ("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror")


@mirlo.script
def calls_rows(x: R.Tensor[(4, 6), R.f32]):
    return R.call_dps_packed("test.row_sums", x, out=R.Tensor[(4,), R.f32])


@dataclass
class Program:
    """A program that runs a model."""

    artifact: Artifact
    folder: Path
    executable: Path
    runner: tuple[str, ...] = ()

    def run(self, inputs: Mapping[str, Any], threads: int = 1, calls: int = 3, *more: str) -> list[np.ndarray]:
        """Run the model on these inputs; return its outputs."""
        self.write_inputs([inputs[spec.name] for spec in self.artifact.inputs])
        done = self.start(threads, calls, *more)
        assert done.returncode == 0, done.stderr
        self.output = done.stdout
        content = (self.folder / "outputs").read_bytes()
        found, at = [], 0
        for spec in self.artifact.outputs:
            shape = np.frombuffer(content, np.int64, len(spec.shape), at)
            at += shape.nbytes
            dtype = numpy_dtype(spec.dtype)
            found.append(np.frombuffer(content, dtype, int(np.prod(shape)), at).reshape(shape))
            at += found[-1].nbytes
        assert at == len(content)
        return found

    def write_inputs(self, arrays: Sequence[Any]) -> None:
        """Write the inputs of the next call."""
        with (self.folder / "inputs").open("wb") as file:
            for given in arrays:
                array = np.asarray(given, order="C")
                file.write(np.array(array.shape, np.int64).tobytes() + array.tobytes())

    def start(self, threads: int = 1, calls: int = 3, *more: str) -> subprocess.CompletedProcess[str]:
        """Run the program on the inputs that were written last."""
        arguments = [str(self.folder / "inputs"), str(self.folder / "outputs"), str(threads), str(calls), *more]
        return subprocess.run(
            [*self.runner, str(self.executable), *arguments], capture_output=True, text=True, check=False
        )


def make_program(
    model: Any, folder: Path, compiler: str | Sequence[str], target: str = "llvm", *, threads: int = 1,
    shared: bool = False, flags: Sequence[str] = (),
    runner: Sequence[str] = (), weights: str = "auto", name: str = "model",
    activations: str | None = None,
) -> Program:  # fmt: skip
    """Compile a model to a library and a program that runs it."""
    request = CompileRequest(
        model, target, form="llvm-ir", threads=threads, jobs=1, cache=False, activations=activations
    )
    artifact, store = compile_code(request)
    written = write_library(artifact, store, folder, name, shared=shared, weights=weights)
    libraries = [str(path) for path in written if path.suffix in (".so", ".dll", ".dylib")]
    objects = [str(path) for path in written if path.suffix == ".o"]
    where = [f'-DLIBRARY="{libraries[0]}"', f'-DNAME="{name}"'] if shared else [f"-DMODEL=mirlo_model_{name}"]
    executable = folder / "program"
    command = [
        *([compiler] if isinstance(compiler, str) else compiler),
        *FLAGS,
        *flags,
        *where,
        f"-I{folder}",
        str(SOURCE),
        str(folder / "mirlo.c"),
        *objects,
    ]
    needed = ["-lm", "-lpthread"] if "windows" in target else ["-lm", "-ldl", "-lpthread"]
    _run([*command, "-o", str(executable), *needed])
    return Program(artifact, folder, executable, tuple(runner))


SOURCE_FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror")
"""The flags with which every model in C compiles."""


def make_source_program(
    model: Any, folder: Path, compiler: str, *, flags: Sequence[str] = (), runner: Sequence[str] = (),
    weights: str = "auto", name: str = "model", target: str = "c", sources: Sequence[Path] = (),
) -> Program:  # fmt: skip
    """Write a model as C and compile it, with further sources, to a program that runs it."""
    artifact, store = compile_code(CompileRequest(model, target, form="source", jobs=1, cache=False))
    written = write_source(artifact, store, folder, name, weights=weights)
    name, objects = library_name(name), [str(path) for path in written if path.suffix == ".o"]
    for path in (*(each for each in written if each.suffix == ".c"), *sources):
        objects.append(str(folder / f"{path.stem}.own.o"))
        _run([compiler, *SOURCE_FLAGS, *flags, f"-I{folder}", "-c", str(path), "-o", objects[-1]])
    executable = folder / "program"
    where = [f"-DMODEL=mirlo_model_{name}", f"-I{folder}"]
    _run([compiler, *FLAGS, *flags, *where, str(SOURCE), *objects, "-o", str(executable), "-lm", "-ldl", "-lpthread"])
    return Program(artifact, folder, executable, tuple(runner))


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def check_row_sums(program: Program) -> None:
    """Check the program of `calls_rows`: its results, and the error where the function of the caller fails."""
    (spec,) = program.artifact.inputs
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_array_equal(program.run({spec.name: x})[0], x.sum(1))
    x[0, 0] = -1
    with pytest.raises(AssertionError, match="packed function 'test.row_sums' failed: it returned 7"):
        program.run({spec.name: x})
