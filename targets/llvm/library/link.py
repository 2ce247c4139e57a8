"""The system's compilers and linkers, by which object files become a shared library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from mirlo.runtime.files import require_writable, write_regular
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.cpus import system_of
from mirlo.targets.llvm.library.description import LibraryError
from mirlo.targets.llvm.processor import host_processor


@dataclass(frozen=True)
class Toolchain:
    """A C compiler, which also links, for a triple."""

    command: tuple[str, ...]
    triple: str


def library_file(name: str, triple: str) -> str:
    """Return the file name of a shared library."""
    forms = {"darwin": "lib{}.dylib", "windows": "{}.dll"}
    return forms.get(system_of(triple), "lib{}.so").format(name)


def find_toolchain(triple: str, needed_for: str = "") -> Toolchain:
    """Return the first compiler for a triple: `$CC` or cc, clang, a cross compiler, Zig's.

    `needed_for` is what it compiles, for the error where there is none.
    """
    arch, own = triple.partition("-")[0], host_processor().triple
    is_own = (arch, system_of(triple)) == (own.partition("-")[0], system_of(own))
    tried: list[str] = []
    names = [os.environ.get("CC", ""), "cc", "clang"] if is_own else []
    if system_of(triple) == "linux":
        names.append(f"{arch}-linux-gnu-gcc")
    for name in filter(None, names):
        tried.append(name)
        program = shutil.which(name)
        if program:
            return Toolchain((program,), triple)
    if find_spec("ziglang") is not None:
        return Toolchain((sys.executable, "-m", "ziglang", "cc", "-target", _zig_triple(triple)), triple)
    looked_for = f"for {triple}: looked for {', '.join([*tried, 'ziglang'])}"
    install = "Install a C compiler, or 'pip install mirlo[cross]'"
    if needed_for:
        raise LibraryError(f"there is no C compiler {looked_for}; {needed_for} needs one. {install}")
    raise LibraryError(
        f"there is no linker {looked_for}. {install}; or write object files with '--emit object', which needs none"
    )


def _zig_triple(triple: str) -> str:
    arch, system = triple.partition("-")[0], system_of(triple)
    libc = "musl" if "musl" in triple else "gnu"
    return {"darwin": f"{arch}-macos", "windows": f"{arch}-windows-gnu"}.get(system, f"{arch}-{system}-{libc}")


def link_shared(toolchain: Toolchain, objects: Sequence[Path], output: Path, symbol: str) -> None:
    """Link object files to a shared library that exports one symbol."""
    system = system_of(toolchain.triple)
    with tempfile.TemporaryDirectory(prefix="mirlo-link-") as folder:
        flags = ["-shared"]
        if system == "darwin" and "ziglang" not in toolchain.command:  # whose linker has no such option
            flags += [f"-Wl,-exported_symbol,_{symbol}"]
        elif system == "linux":
            script = Path(folder) / "exports"
            write_regular(script, f"{{ global: {symbol}; local: *; }};\n")
            flags += [
                f"-Wl,--version-script={script}",
                "-Wl,-z,text",
                "-Wl,-z,noexecstack",
                f"-Wl,-soname,{output.name}",
            ]
        elif "msvc" in toolchain.triple and "ziglang" in toolchain.command:
            # Code with floats refers to a symbol of Microsoft's C library; Zig links with MinGW's, which lacks it.
            symbols = Path(folder) / "symbols.c"
            write_regular(symbols, "int _fltused = 1;\n")
            flags.append(str(symbols))
        target = str(require_writable(output))
        run([*toolchain.command, *flags, *map(str, objects), "-o", target, *(["-lm"] if system == "linux" else [])])


def run(command: Sequence[str]) -> None:
    """Run a compiler; raise an error with its first lines if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise LibraryError(f"cannot run '{command[0]}': {error.strerror or error}") from error
    if done.returncode:
        first = "\n".join(done.stderr.strip().splitlines()[:10])
        raise LibraryError(f"'{' '.join(command[:4])} ...' failed with code {done.returncode}:\n{first}")
