"""NVIDIA's assembler, if there is one: on the path, in a CUDA installation, or in the wheel `nvidia-cuda-nvcc`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from mirlo.runtime.files import write_regular
from mirlo.runtime.records import dataclass
from mirlo.targets.nvvm.chips import Chip


@dataclass(frozen=True)
class Assembled:
    """The assembler's output for PTX."""

    cubin: bytes
    registers: int
    spilled_bytes: int
    shared_bytes: int
    warnings: tuple[str, ...] = ()
    """Warnings about instructions that it does not follow."""


class AssemblerError(RuntimeError):
    """The assembler rejected PTX."""


@cache
def find_ptxas() -> str | None:
    """Return the assembler's path, or None."""
    names = ["ptxas", "/usr/local/cuda/bin/ptxas"]
    names += [str(p) for folder in sys.path for p in sorted(Path(folder or ".").glob("nvidia/*/bin/ptxas"))]
    return next((program for name in names if (program := shutil.which(name))), None)


def run_ptxas(ptx: str | bytes, chip: Chip) -> Assembled:
    """Assemble PTX for a chip."""
    path = find_ptxas()
    if path is None:
        raise AssemblerError("there is no ptxas: install CUDA, or pip install nvidia-cuda-nvcc")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        write_regular(source, ptx.encode() if isinstance(ptx, str) else ptx)
        done = subprocess.run(
            [path, "-v", f"-arch={chip.name}", str(source), "-o", str(target)], capture_output=True, text=True
        )
        if done.returncode:
            raise AssemblerError(done.stderr.strip() or done.stdout.strip())
        return Assembled(
            target.read_bytes(), _largest(r"Used (\d+) registers", done.stderr),
            _largest(r"(\d+) bytes spill stores", done.stderr), _largest(r"(\d+) bytes smem", done.stderr),
            tuple(line for line in done.stderr.splitlines() if re.search(r"warning|\(C\d+\)|serialized", line)),
        )  # fmt: skip


def _largest(pattern: str, text: str) -> int:
    return max(map(int, re.findall(pattern, text)), default=0)
