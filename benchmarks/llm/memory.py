"""The memory of a generating process: its peak compared with its data, and its growth over many tokens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mirlo import generate

PROMPT = 512
WARM = 200
"""Tokens before growth is measured."""
MIB = 1 << 20


def report_memory(folder: Path, threads: int, tokens: int) -> None:
    """Compile the model, then generate with it in a new process, which prints the figures."""
    generate.load(folder, threads=threads)
    command = [sys.executable, "-m", "mirlo.benchmarks.llm.memory", str(folder), str(threads), str(tokens)]
    subprocess.run(command, check=True)


def _generate(folder: Path, threads: int, tokens: int) -> None:
    """Generate tokens; print the peak of the memory, and how much it grows beyond the caches."""
    model = generate.load(folder, threads=threads)
    weights = model.executable.memory.weights_bytes
    stored = sum(path.stat().st_size for path in folder.glob("model.onnx*"))
    generator = model.generator(min_length=1 << 30, max_length=0)
    generator.append([2 + i % 300 for i in range(PROMPT)])
    for _ in range(WARM):
        generator.next()
    peak, before, held = _kib("VmHWM"), _kib("VmRSS"), _cache_bytes(generator)
    print(
        f"weights in the files {stored / MIB:.0f} MiB, in memory {weights / MIB:.0f} MiB, caches {held / MIB:.0f} MiB"
    )
    beyond = peak / 1024 - (stored + held) / MIB
    print(f"peak {peak / 1024:.0f} MiB: {beyond:+.0f} MiB beside files and caches", flush=True)
    for _ in range(tokens):
        generator.next()
    grown = (_kib("VmRSS") - before) / 1024 - (_cache_bytes(generator) - held) / MIB
    print(f"after {tokens} more tokens: {grown:+.1f} MiB beside the caches, peak {_kib('VmHWM') / 1024:.0f} MiB")


def _cache_bytes(generator: generate.Generator) -> int:
    """Return the bytes of the caches, of all rows that they have room for."""
    state = generator._sequences._state
    rows = {name: array.nbytes // array.shape[2] for name, array in state.arrays.items()}
    return state.capacity * sum(rows.values())


def _kib(field: str) -> int:
    """Return a figure of this process from /proc."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


if __name__ == "__main__":
    _generate(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
