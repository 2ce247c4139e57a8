"""Measurement of models on emulated boards: `python -m mirlo_cortex_m.measure [--cpu NAME,...] MODEL.onnx...`.

Each model is written as source, built, run once on random inputs, and compared with what Mirlo computes on this
machine.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import mirlo
from mirlo_cortex_m import FLAGS
from mirlo_cortex_m.board import Run, missing_tools, run_on_board


@dataclass(frozen=True)
class Measurement:
    """A model on a board, and the estimates of its report."""

    run: Run
    is_equal: bool
    """Whether all results are equal to those of this machine, bit for bit."""
    products: int
    weights: int
    arena: int
    bound: int
    """Peak bytes of live tensors."""

    def row(self, model: str, processor: str) -> str:
        """Return a row of the table."""
        run = self.run
        return (
            f"| {model} | {processor} | {self.products:,} | {run.instructions:,} "
            f"| {run.instructions / self.products:.2f} | "
            f"{run.flash - self.weights:,} | {self.weights:,} | {run.ram:,} | {self.bound:,} | "
            f"{run.stack:,} | {run.stack_bound:,} | "
            f"{'yes' if self.is_equal else 'NO'} |"
        )


COLUMNS = (
    "model", "processor", "multiply-adds", "instructions", "per multiply-add", "code", "weights", "arena",
    "lower bound", "stack", "its bound", "bit-exact",
)  # fmt: skip
HEAD = f"| {' | '.join(COLUMNS)} |\n|{' --- |' * 2}{' ---: |' * 9} --- |"


def measure(model: Path, processor: str) -> Measurement:
    """Compile a model for a processor, run it on its board, and compare."""
    from mirlo.extend.command import main as command

    executable = mirlo.compile(model)
    inputs = executable.random_inputs()
    expected = executable.run(inputs)
    name = re.sub(r"\W", "_", model.name.partition(".")[0])
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        words = ["compile", str(model), "--target", f"c{{cpu={processor}}}", "--emit", "source", "--name", name]
        with contextlib.redirect_stdout(io.StringIO()):
            command([*words, "-o", str(folder)])
        report = (folder / f"{name}.txt").read_text()
        run = run_on_board(folder, name, processor, list(inputs.values()), list(expected.values()))
    pairs = zip(run.outputs, expected.values(), strict=True)

    def number(pattern: str) -> int:
        found = re.search(pattern, report)
        return int(found[1]) if found else 0

    return Measurement(
        run, all(np.array_equal(found, wanted) for found, wanted in pairs), number(r"multiply-adds: (\d+)"),
        number(r"weights: (\d+)"), number(r"arena: (\d+)"), number(r"to the (\d+) bytes"),
    )  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m mirlo_cortex_m.measure", description=__doc__)
    parser.add_argument("models", nargs="+", type=Path, help="models in ONNX")
    parser.add_argument("--cpu", default=",".join(FLAGS), help="processors, with commas (default: all)")
    arguments = parser.parse_args()
    missing = missing_tools()
    if missing:
        raise SystemExit(f"install {', '.join(missing)}")
    print(HEAD)
    for model in arguments.models:
        for processor in arguments.cpu.split(","):
            print(measure(model, processor).row(model.name.partition(".")[0], processor), flush=True)


if __name__ == "__main__":
    main()
