"""Translate the run time's C sources to the LLVM IR that ships: python -m release.runtime_ir [--check].

A process compiles the IR with llvmlite, so that users need no C compiler. Clang is that of the package `ziglang`, of
the LLVM of the oldest llvmlite that Mirlo supports: newer ones write attributes that older ones do not read. A text
serves all processors and systems of an ABI: attributes that name a processor, a system or a compiler are removed.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES, TEXTS = ROOT / "runtime" / "c", ROOT / "runtime" / "ir"
HEADERS = ROOT / "targets" / "llvm" / "library" / "c"
"""The folder of `mirlo_call.h`, which these sources share with `mirlo.c`."""
ZIGLANG, CLANG = "0.17.1", "22.1"
"""The version of the package `ziglang`, and of its clang."""
FLAGS = (
    "-std=gnu11", "-O2", "-g0", "-Wall", "-Wextra", "-Werror", "-fno-sanitize=all", "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables", "-fno-strict-aliasing", "-fno-vectorize", "-fno-slp-vectorize",
    "-fno-unroll-loops", "-fno-builtin", "-fno-stack-check",
)  # fmt: skip
_SHOWN = re.compile(r"^(; ModuleID|source_filename|target (triple|datalayout)|attributes #|!|; Function Attrs)")
_REMOVED = re.compile(
    r"(, !(tbaa|llvm\.loop|range|noundef|srcloc|tbaa\.struct|prof|unpredictable) !\d+)+|\s*; preds = .*$"
)
_GROUP = re.compile(r" #\d+(?=( \{)?$)")
_INCLUDE = re.compile(r'^#include "(.+)"$', re.MULTILINE)


@dataclass(frozen=True)
class Text:
    """A file of LLVM IR: the source that it is made of, and zig's name of a target with its ABI."""

    name: str
    source: str
    target: str
    uses_python: bool = False
    flags: tuple[str, ...] = ()
    has_assembly: bool = False
    """Whether it is for one processor, as assembly is; the process that compiles it has that."""

    @property
    def path(self) -> Path:
        return TEXTS / f"{self.name}.ll"


_64_BITS = "x86_64-linux-gnu"
"""A target with the ABI of AArch64, macOS and Windows, too, for the types of these sources: pointers and integers."""
_THREADS = {
    "x86_64-linux": "x86_64-linux-gnu",
    "aarch64-linux": "aarch64-linux-gnu",
    "riscv64-linux": "riscv64-linux-gnu",
    "x86_64-posix": "x86_64-macos",
    "aarch64-posix": "aarch64-macos",
    "x86_64-windows": "x86_64-windows-gnu",
    "aarch64-windows": "aarch64-windows-gnu",
}
"""Zig's targets of the pool: pauses and counters are the processors' own, threads the systems'."""
ALL = (
    Text("direct", "direct.c", _64_BITS, uses_python=True),
    Text("interrupts", "interrupts.c", _64_BITS, uses_python=True),
    Text("heartbeat", "heartbeat.c", _64_BITS),
    *(Text(f"threads-{target}", "threads.c", zig) for target, zig in _THREADS.items()),
    Text("cpuid-x86_64-linux", "cpuid.c", "x86_64-linux-gnu", has_assembly=True),
    Text("threads-wasm32", "threads.c", "wasm32-wasi", flags=("-matomics", "-mbulk-memory")),
)


def sources_digest(text: Text) -> str:
    """Return the digest of the inputs of a text: the source, its headers here, the flags, and the compiler."""
    digest = hashlib.sha256(repr((FLAGS, text.flags, text.target, ZIGLANG)).encode())
    waiting, seen = [text.source], set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        path = next(folder / name for folder in (SOURCES, HEADERS) if (folder / name).exists())
        content = path.read_text(encoding="utf-8")
        digest.update(f"{name}\n{content}".encode())
        waiting += sorted(_INCLUDE.findall(content))
    return digest.hexdigest()[:32]


def heading(text: Text, body: str) -> str:
    """Return the first line of a text: its source, and the digests of its inputs and of the rest of the text."""
    own = hashlib.sha256(body.encode()).hexdigest()[:32]
    return f"; By `make runtime-ir` from runtime/c/{text.source}. Sources {sources_digest(text)}, text {own}."


def is_current(text: Text) -> bool:
    """Return whether a text is the unchanged translation of its present sources."""
    first, _, body = text.path.read_text(encoding="utf-8").partition("\n")
    return first == heading(text, body)


def translate(text: Text) -> str:
    """Return the LLVM IR of a text, with its heading."""
    includes = [f"-I{HEADERS}"]
    if text.uses_python:
        import numpy as np

        includes += [f"-isystem{sysconfig.get_paths()['include']}", f"-isystem{np.get_include()}"]
    with tempfile.TemporaryDirectory(prefix="mirlo-runtime-ir-") as folder:
        path = Path(folder) / "text.ll"
        command = [sys.executable, "-m", "ziglang", "cc", "-target", text.target, *FLAGS, *text.flags, *includes]
        command += [
            "-S",
            "-emit-llvm",
            str(SOURCES / text.source),
            "-o",
            str(path),
            "-Wno-unused-command-line-argument",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{text.source} for {text.target}:\n{done.stderr}")
        body = plain(path.read_text(encoding="utf-8"), text.has_assembly)
    require_parsed(text, body)
    return f"{heading(text, body)}\n{body}"


def plain(text: str, has_assembly: bool = False) -> str:
    """Return LLVM IR without names of a processor, a system or a compiler, which the target machine provides."""
    if " asm " in text and not has_assembly:
        raise SystemExit("assembly is for one processor: use a function that is built into the compiler")
    kept = (_GROUP.sub("", _REMOVED.sub("", line)).rstrip() for line in text.splitlines() if not _SHOWN.match(line))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip() + "\n"


def require_parsed(text: Text, body: str) -> None:
    """Require that llvmlite reads a text."""
    import llvmlite.binding as llvm

    try:
        llvm.parse_assembly(body, llvm.create_context()).verify()
    except RuntimeError as error:
        raise SystemExit(f"{text.path.name}: llvmlite does not read it: {error}") from None


def has_compiler() -> bool:
    """Return whether the compiler of the texts is installed, in its version."""
    command = [sys.executable, "-m", "ziglang", "cc", "--version"]
    try:
        return f"clang version {CLANG}." in subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="report the texts that are not up to date; write nothing")
    stale = [text for text in ALL if not text.path.exists() or not is_current(text)]
    if parser.parse_args().check:
        raise SystemExit("\n".join(f"{text.path.name}: run `make runtime-ir`" for text in stale) or 0)
    if not has_compiler():
        raise SystemExit(f"the package ziglang {ZIGLANG} is needed: pip install ziglang=={ZIGLANG}")
    TEXTS.mkdir(exist_ok=True)
    for text in ALL:
        text.path.write_text(translate(text), encoding="utf-8")
        print(f"{text.path.relative_to(ROOT)}: {text.path.read_text(encoding='utf-8').count(chr(10))} lines")


if __name__ == "__main__":
    main()
