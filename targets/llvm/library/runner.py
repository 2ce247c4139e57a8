"""The runner, a program in C that runs models on boards without Python: its files, and the program for a machine."""

from __future__ import annotations

import tempfile
from pathlib import Path

from mirlo.runtime.files import require_writable, write_regular
from mirlo.targets.llvm.cpus import ARM, RISCV, X86, arch_of, system_of
from mirlo.targets.llvm.library.description import LibraryError
from mirlo.targets.llvm.library.link import find_toolchain, run
from mirlo.targets.llvm.library.objects import pool_object
from mirlo.targets.llvm.library.sources import POOL, RUN_TIME_FOLDER
from mirlo.targets.llvm.processor import Processor

SOURCES = ("runner.c", "runner_model.c", "runner_wire.c", "mirlo.c")
HEADERS = ("runner.h", "mirlo.h", "mirlo_call.h")
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra")
"""The flags with which its files compile, without warnings."""
LIBRARIES = ("-rdynamic", "-lm", "-ldl", "-lpthread")
"""Models are shared libraries that the program opens, which may call its functions."""
ARCHES, SYSTEMS = (ARM, RISCV, X86), ("linux", "darwin")


def write_runner(output: Path, processor: Processor) -> list[Path]:
    """Compile and link the runner for every processor of a kind; return the program."""
    _require_known(processor.triple)
    toolchain = find_toolchain(processor.triple, "the runner")
    with tempfile.TemporaryDirectory(prefix="mirlo-runner-") as name:
        pool = Path(name) / POOL
        write_regular(pool, pool_object(processor))
        sources = [str(RUN_TIME_FOLDER / source) for source in SOURCES]
        run([*toolchain.command, *FLAGS, *sources, str(pool), "-o", str(require_writable(output)), *LIBRARIES])
    return [output]


def write_runner_source(folder: Path, processor: Processor) -> list[Path]:
    """Write the files of the runner, with a line that compiles them on a board; return them."""
    _require_known(processor.triple)
    folder.mkdir(parents=True, exist_ok=True)
    contents = {name: (RUN_TIME_FOLDER / name).read_bytes() for name in (*SOURCES, *HEADERS)}
    contents[POOL] = pool_object(processor)
    command = f"${{CC:-cc}} {' '.join([*FLAGS, *SOURCES, POOL])} -o runner {' '.join(LIBRARIES)}"
    contents["build.sh"] = f'#!/bin/sh\ncd "$(dirname "$0")" && {command}\n'.encode()
    written = []
    for file, content in contents.items():
        written.append(folder / file)
        write_regular(written[-1], content)
    return written


FORMS = {"program": write_runner, "source": write_runner_source}
"""What `mirlo remote --emit` writes."""


def _require_known(triple: str) -> None:
    if arch_of(triple) not in ARCHES or system_of(triple) not in SYSTEMS:
        raise LibraryError(
            f"there is no runner for {triple}: expected Linux or macOS on {', '.join(ARCHES)}, such as "
            "'llvm{cpu=generic triple=aarch64-linux-gnu}'"
        )
