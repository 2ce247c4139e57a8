"""Other engines without the instructions above AVX2, whatever the processor has.

Neither has a switch for all of its code: ONNX Runtime has none, and `DNNL_MAX_CPU_ISA` reaches only oneDNN's part of
OpenVINO. So each engine's package is copied, and every `cpuid` in its libraries, which a disassembler finds, becomes an
instruction that traps. A preloaded library (`cpuid.c`) answers instead of the processor: no AVX-512, AVX-VNNI, AMX.

The copy is used by a command that takes the place of the engine's Python.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import re
import shlex
import shutil
import struct
import subprocess
import sys
from pathlib import Path

from mirlo.runtime.errors import MirloError
from mirlo.targets.c.compiler import find_compiler

SOURCE = Path(__file__).with_name("cpuid.c")
TARGETS = {"avx2": "llvm{cpu=x86-64-v3}"}
"""What Mirlo compiles for, by the name of the instruction set."""
ENGINES = {"onnxruntime": "onnxruntime", "openvino": "openvino"}
"""The packages that can be restricted, by engine."""
CPUID, TRAP = b"\x0f\xa2", b"\x0f\x0a"
_FOUND = re.compile(r"^\s*([0-9a-f]+):\s+cpuid\b", re.MULTILINE)
_EXECUTABLE, _LOAD = 1, 1


class RestrictionError(MirloError):
    """An engine that cannot be restricted here."""


def restricted_python(engine: str, isa: str, cache: Path) -> Path:
    """Return a command that is Python with a restricted copy of an engine, made in a folder unless it is there."""
    if engine not in ENGINES:
        raise RestrictionError(f"--isa {isa}: {engine} cannot be restricted; these can: {', '.join(ENGINES)}")
    package = ENGINES[engine]
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise RestrictionError(f"{engine} is not installed: pip install 'mirlo[bench-{engine}]'")
    origin = Path(next(iter(spec.submodule_search_locations)))
    key = hashlib.sha256(Path(__file__).read_bytes() + SOURCE.read_bytes() + sys.executable.encode()).hexdigest()[:12]
    folder = cache / f"{isa}-{engine}-{importlib.metadata.version(package)}-{key}"
    command = folder / "python"
    if command.exists():
        return command
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(origin, folder / "packages" / package, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (folder / "packages").rglob("*.so*"):
        if not path.is_symlink():
            replace_cpuid(path)
    library = preloaded_library(folder)
    words = [f"LD_PRELOAD={library}", f"PYTHONPATH={folder / 'packages'}", sys.executable]
    command.write_text(f'#!/bin/sh\nexec env {shlex.join(words)} "$@"\n')
    command.chmod(0o755)
    return command


def preloaded_library(folder: Path) -> Path:
    """Compile the library that answers in place of the processor; it starts before all others."""
    library = folder / "cpuid.so"
    flags = ["-O1", "-fPIC", "-shared", "-Wl,-z,initfirst"]
    subprocess.run([find_compiler(), *flags, str(SOURCE), "-o", str(library)], check=True)
    return library


def replace_cpuid(path: Path) -> int:
    """Replace each `cpuid` of a library by an instruction that traps; return their number."""
    content = bytearray(path.read_bytes())
    if CPUID not in content:
        return 0
    segments = _segments(content)
    addresses = [int(digits, 16) for digits in _FOUND.findall(_disassembled(path))]
    for address in addresses:
        at = next((address - start + offset for start, offset, size in segments if 0 <= address - start < size), None)
        if at is None or content[at : at + 2] != CPUID:
            raise RestrictionError(f"{path}: the disassembler has cpuid at {address:#x}, the file has not")
        content[at : at + 2] = TRAP
    path.write_bytes(content)
    return len(addresses)


def _disassembled(path: Path) -> str:
    program = shutil.which("objdump")
    if program is None:
        raise RestrictionError("there is no objdump to find instructions with: install binutils")
    command = [program, "--disassemble", "--no-show-raw-insn", str(path)]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=True).stdout


def _segments(content: bytes | bytearray) -> list[tuple[int, int, int]]:
    """Return address, offset and size of the segments of an ELF file that hold code."""
    if content[:6] != b"\x7fELF\x02\x01":
        raise RestrictionError("expected a library of 64-bit Linux")
    (table,) = struct.unpack_from("<Q", content, 32)
    each, count = struct.unpack_from("<HH", content, 54)
    segments = []
    for i in range(count):
        kind, flags, offset, address, _, size = struct.unpack_from("<IIQQQQ", content, table + i * each)
        if kind == _LOAD and flags & _EXECUTABLE:
            segments.append((address, offset, size))
    return segments
