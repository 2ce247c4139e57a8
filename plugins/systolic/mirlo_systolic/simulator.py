"""The RTL as a library in this process, built by Verilator once for each version of its sources."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
SOURCES = tuple(FOLDER / name for name in ("rtl/systolic.sv", "rtl/harness.cpp", "driver.c", "driver.h"))
TOOLS = ("verilator", "make", "g++")
FLAGS = (
    "--cc", "--exe", "-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert", "-Wno-WIDTH", "-Wno-BLKSEQ",
    "-Wno-fatal", "--top-module", "systolic", "-CFLAGS", "-O2 -fPIC",
)  # fmt: skip
MAKE_VARIABLES = ("VM_PARALLEL_BUILDS=0", "OPT_GLOBAL=-O0")
"""Compiler flags for Verilator's own files, which are not optimized, as no cycle executes them."""
OBJECTS = ("harness.o", "verilated.o", "verilated_dpi.o", "verilated_threads.o")
ERRORS = {
    1: "a command of the unit reads or writes outside of its memory",
    2: "the unit stopped: a queue waits for a token that no other gives",
    3: "the program of the unit is damaged",
    4: "there is no memory for the unit",
}
MEGAHERTZ = 1000.0
"""The clock frequency that times assume."""
PARTS = ("load", "array", "requantize", "store")
"""The parts of the unit with busy counters."""


class SimulatorError(Exception):
    """The simulator cannot be built, or a program fails on it."""


@dataclass(frozen=True)
class Step:
    """The cycles of a layer, and the busy cycles of each part of the unit."""

    cycles: int
    load: int
    array: int
    requantize: int
    store: int


def missing_tools() -> list[str]:
    """Return the tools that are not installed."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


@functools.cache
def version() -> str:
    """Return a hash of the sources of the unit and its driver."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()


@functools.cache
def library_path() -> Path:
    """Return the library of the simulator, built at the first call."""
    missing = missing_tools()
    if missing:
        raise SimulatorError(f"the simulator needs {', '.join(missing)}: install the packages verilator, make and g++")
    tool = subprocess.run(["verilator", "--version"], capture_output=True, text=True, check=True).stdout
    key = hashlib.sha256(tool.encode() + repr(FLAGS).encode() + version().encode())
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = caches / "mirlo-systolic" / f"{key.hexdigest()[:24]}.so"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / "unit.so"
        _build(Path(folder), made)
        made.replace(path)
    return path


def _build(folder: Path, made: Path) -> None:
    rtl, harness, driver, _ = SOURCES
    _run("verilator", *FLAGS, "-Mdir", folder, rtl, harness)
    _run("make", "-C", folder, "-f", "Vsystolic.mk", *MAKE_VARIABLES, "Vsystolic__ALL.a", *OBJECTS)
    _run("cc", "-O2", "-fPIC", "-c", driver, "-o", folder / "driver.o")
    objects = [folder / name for name in (*OBJECTS, "driver.o", "Vsystolic__ALL.a")]
    _run("g++", "-shared", "-Wl,--no-undefined", "-o", made, *objects, "-lpthread")


def _run(*command: object) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise SimulatorError(f"{command[0]} failed while the simulator was made: " + "\n".join(lines[:20]))


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(library_path()))


def execute(memory: np.ndarray, commands: bytes, barriers: int = 0) -> list[Step]:
    """Execute commands on a memory, in place; return the cycles until each barrier."""
    records = np.zeros((barriers, 1 + len(PARTS)), np.uint64)
    pointer = ctypes.c_void_p
    status = _library().systolic_execute(
        pointer(memory.ctypes.data), ctypes.c_uint64(memory.nbytes), commands, ctypes.c_uint64(len(commands) // 32),
        pointer(records.ctypes.data), ctypes.c_uint64(barriers),
    )  # fmt: skip
    return _steps(status, records)


def call(program: bytes, tensors: tuple[np.ndarray, ...], steps: int) -> list[Step]:
    """Run a program on inputs and outputs; return the cycles of its steps."""
    records = np.zeros((steps, 1 + len(PARTS)), np.uint64)
    pointers = (ctypes.c_void_p * len(tensors))(*(tensor.ctypes.data for tensor in tensors))
    status = _library().systolic_call(
        program, ctypes.c_uint64(len(program)), pointers, ctypes.c_uint64(len(tensors)),
        ctypes.c_void_p(records.ctypes.data), ctypes.c_uint64(steps),
    )  # fmt: skip
    return _steps(status, records)


def measure(program: bytes, steps: int) -> list[Step]:
    """Run a program on zeros, since cycles do not depend on data."""
    words = np.frombuffer(program, np.uint32)
    tensors = int(words[6]) + int(words[7])
    sizes = words[9 : 8 + 7 * tensors : 7].tolist()
    return call(program, tuple(np.zeros(size, np.uint8) for size in sizes), steps)


def _steps(status: int, records: np.ndarray) -> list[Step]:
    if status:
        raise SimulatorError(ERRORS.get(status, f"the unit returned {status}"))
    return [Step(*row) for row in np.diff(records.astype(np.int64), axis=0, prepend=0).tolist()]
