"""The system's C compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from mirlo.runtime.errors import MirloError
from mirlo.runtime.files import write_regular
from mirlo.runtime.system import LIBRARY_SUFFIX
from mirlo.targets.llvm.library.sources import RUN_TIME_FOLDER

CANDIDATES = ("cc", "gcc", "clang")
FLAGS = ("-O2", "-fPIC", "-fwrapv", "-w", "-std=c11")
OBJECT_FLAGS = ("-std=c99", "-fPIC", "-Wall", "-Wextra")
"""The flags for whole models, which are free of warnings and of overflow that C does not define."""


class CompilerError(MirloError, RuntimeError):
    """The C compiler is missing or failed."""

    error_code = "MIR0507"
    remedy = "Install a C compiler, or set `CC`; the message has the compiler's own."


def find_compiler(wanted: str = "") -> str:
    """Return the path of the requested C compiler, of the one in the variable CC, or of the first one installed."""
    names = [wanted] if wanted else [name for name in (os.environ.get("CC", ""), *CANDIDATES) if name]
    for name in names:
        compiler = shutil.which(name)
        if compiler:
            return compiler
    raise CompilerError(
        f"no C compiler: looked for {', '.join(names)}. Install one, name one where the target is named, "
        "'c{compiler=PATH}', or leave with the source: 'mirlo compile MODEL --target c --emit source'"
    )


def compile_shared_files(
    files: Mapping[str, str], objects: Mapping[str, bytes], compiler: str, flags: Sequence[str] = ()
) -> bytes:
    """Compile the C files among some files, and link them with object files, to a shared library; return its bytes."""
    contents = {**{name: text.encode() for name, text in files.items()}, **objects}
    inputs = [name for name in files if name.endswith(".c")]
    how = [f"-I{RUN_TIME_FOLDER}", "-shared"]
    return _compiled(contents, [*inputs, *objects], compiler, [*FLAGS, *flags], how, f"region{LIBRARY_SUFFIX}", ["-lm"])


def compile_shared(source: str, compiler: str, flags: Sequence[str] = ()) -> bytes:
    """Compile a source file to a shared library and return its bytes."""
    return compile_shared_files({"region.c": source}, {}, compiler, flags)


def compile_object(source: str, compiler: str, opt_level: int, flags: Sequence[str] = ()) -> bytes:
    """Compile a source file to an object file and return its bytes; it may include `mirlo.h`."""
    flags, how = [*OBJECT_FLAGS, f"-O{opt_level}", *flags], ["-c", f"-I{RUN_TIME_FOLDER}"]
    return _compiled({"region.c": source.encode()}, ["region.c"], compiler, flags, how, "region.o")


def _compiled(
    contents: Mapping[str, bytes], inputs: Sequence[str], compiler: str, flags: Sequence[str], how: Sequence[str],
    output: str, libraries: Sequence[str] = (),
) -> bytes:  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="mirlo-c-") as name:
        folder = Path(name)
        for file, content in contents.items():
            write_regular(folder / file, content)
        library = folder / output
        command = [compiler, *flags, *how, *(str(folder / file) for file in inputs), "-o", str(library), *libraries]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        except OSError as error:
            raise CompilerError(f"cannot run '{compiler}': {error.strerror or error}") from error
        if done.returncode != 0 or not library.is_file():
            first = "\n".join(done.stderr.strip().splitlines()[:10])
            shown = " ".join([compiler, *flags, *how[-1:]])
            raise CompilerError(f"'{shown}' failed with code {done.returncode}:\n{first}")
        return library.read_bytes()
