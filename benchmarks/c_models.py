"""Models as C source and as object files: `python -m benchmarks.c_models [MODEL...]`.

The first table divides the CPU time of a call on target `c` by that on target `llvm`: one thread, the least of some
calls in turns. The second one has the bytes of object files without weights, for two threads.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import mirlo
from mirlo.benchmarks.models import path
from mirlo.tools.cli import main as mirlo_command

MODELS = ("mobilenetv2", "resnet50", "bert_base", "gpt2", "vit_base")
FLAGS = {"-O2": "c", "-O3 -march=native": "c{flags=-O3,-march=native}"}
MACHINES = {
    "x86-64-v3": "llvm{triple=x86_64-unknown-linux-gnu cpu=x86-64-v3}",
    "x86-64-v4": "llvm{triple=x86_64-unknown-linux-gnu cpu=x86-64-v4}",
    "neoverse-n1": "llvm{triple=aarch64-unknown-linux-gnu cpu=neoverse-n1}",
}


def ratios(model: Path, repeat: int) -> list[str]:
    """Return the time of a call by target `llvm`'s for each choice of flags, and the largest difference."""
    targets = ["llvm", *FLAGS.values()]
    executables = [mirlo.compile(model, target, threads=1, cache=False) for target in targets]
    inputs = executables[0].random_inputs(seed=0)
    wanted, *others = ([np.asarray(array) for array in exe.run(inputs).values()] for exe in executables)
    errors = [abs(a - b).max() / abs(b).max() for other in others for a, b in zip(other, wanted, strict=True)]
    own, *theirs = (min(times) for times in zip(*(turn(executables, inputs) for _ in range(repeat)), strict=True))
    return [*(f"{seconds / own:.1f}" for seconds in theirs), f"{max(errors):.0e}"]


def turn(executables: list[Any], inputs: Mapping[str, np.ndarray]) -> list[float]:
    """Return the CPU seconds of a call of each."""
    seconds = []
    for exe in executables:
        start = time.process_time()
        exe.run(inputs)
        seconds.append(time.process_time() - start)
    return seconds


def object_bytes(model: Path, target: str) -> str:
    """Return the bytes of the object file of a model without its weights."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "model"
        words = [
            "--emit",
            "object",
            "--name",
            "model",
            "--weights",
            "beside",
            "--threads",
            "2",
            "--target",
            target,
            "-o",
            str(output),
        ]
        with contextlib.redirect_stdout(io.StringIO()):
            if mirlo_command(["compile", str(model), *words]):
                return "-"
        return f"{(output / 'model.o').stat().st_size:,}"


def print_table(head: list[str], rows: list[list[str]]) -> None:
    print(f"| {' | '.join(head)} |\n| --- |{' ---: |' * (len(head) - 1)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.c_models", description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", default=list(MODELS))
    parser.add_argument("--repeat", type=int, default=3, help="calls of each (default: 3)")
    arguments = parser.parse_args()
    models = {name: path(name) for name in arguments.models}
    rows = [[name, *ratios(model, arguments.repeat)] for name, model in models.items()]
    print_table(["model", *(f"`{flags}`" for flags in FLAGS), "difference"], rows)
    print()
    sizes = [[name, *(object_bytes(model, target) for target in MACHINES.values())] for name, model in models.items()]
    print_table(["model", *MACHINES], sizes)


if __name__ == "__main__":
    main()
