"""The system's C compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mirlo.runtime.errors import MirloError

CANDIDATES = ("cc", "gcc", "clang")
FLAGS = ("-O2", "-fPIC", "-fwrapv", "-w", "-std=c11")
SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")


class CompilerError(MirloError, RuntimeError):
    """The C compiler is missing or failed."""


def find_compiler(wanted: str = "") -> str:
    """Return the path of the requested C compiler, of the one in the variable CC, or of the first one installed."""
    names = [wanted] if wanted else [name for name in (os.environ.get("CC", ""), *CANDIDATES) if name]
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    raise CompilerError(
        f"no C compiler: looked for {', '.join(names)}. Install one, name one where the target is named, "
        "'c{compiler=PATH}', or leave with the source: 'mirlo compile MODEL --targets c --emit source'"
    )


def compile_shared(source: str, compiler: str, flags: Sequence[str] = ()) -> bytes:
    """Compile a source file to a shared library and return its bytes."""
    with tempfile.TemporaryDirectory(prefix="mirlo-c-") as folder:
        code, library = Path(folder) / "region.c", Path(folder) / f"region{SUFFIX}"
        code.write_text(source, encoding="utf-8")
        command = [compiler, *FLAGS, *flags, "-shared", str(code), "-o", str(library), "-lm"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        except OSError as error:
            raise CompilerError(f"cannot run '{compiler}': {error.strerror or error}") from error
        if done.returncode != 0 or not library.is_file():
            first = "\n".join(done.stderr.strip().splitlines()[:10])
            raise CompilerError(f"'{' '.join(command[:-4])}' failed with code {done.returncode}:\n{first}")
        return library.read_bytes()
