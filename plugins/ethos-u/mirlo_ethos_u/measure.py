"""A table of models on Ethos-U: `python -m mirlo_ethos_u.measure [--accelerator NAME,...] MODEL...`.

Each model is compiled by Vela for each accelerator, run once on random inputs by TOSA's reference model, and compared
with what Mirlo computes on this machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import mirlo
from mirlo.testing import placement_of
from mirlo_ethos_u.tools import missing_tools

DEFAULT = "ethos-u55-128,ethos-u65-256,ethos-u85-256"
COLUMNS = ("model", "accelerator", "work placed", "regions", "multiply-adds", "cycles", "SRAM", "flash", "bit-exact")
HEAD = f"| {' | '.join(COLUMNS)} |\n|{' --- |' * 2}{' ---: |' * 6} --- |"


@dataclass(frozen=True)
class Measurement:
    """A model on an accelerator: Vela's estimates, and the difference of the reference model's results."""

    share: float
    """Operations in regions, and all operations."""
    regions: int
    macs: int
    cycles: int
    sram: int
    """Bytes of the region that needs most."""
    flash: int
    is_equal: bool
    """Whether all results are equal to those of this machine, bit for bit."""

    def row(self, model: str, accelerator: str) -> str:
        """Return a row of the table."""
        return (
            f"| {model} | {accelerator} | {self.share:.2%} | {self.regions} | {self.macs:,} | {self.cycles:,} | "
            f"{self.sram:,} | {self.flash:,} | {'yes' if self.is_equal else 'NO'} |"
        )


def measure(model: Path, accelerator: str, dims: Mapping[str, int] | None = None) -> Measurement:
    """Compile a model for an accelerator, run it, and compare."""
    targets = [f"ethos-u{{accelerator={accelerator}}}", "llvm"]
    executable, host = mirlo.compile(model, targets, dims=dims), mirlo.compile(model, dims=dims)
    inputs = host.random_inputs()
    found, expected = executable.run(inputs), host.run(inputs)
    regions = [
        region
        for artifact in executable.artifact.externals if artifact.target == "ethos-u"
        for region in artifact.metadata["regions"].values()
    ]  # fmt: skip
    shares = placement_of(model, targets, {value.name: value.shape for value in host.inputs}).shares
    work = {name: share.flops or 0 for name, share in shares.items()}
    return Measurement(
        work["ethos-u"] / max(1, sum(work.values())), len(regions), sum(r["macs"] for r in regions),
        sum(r["cycles"] for r in regions), max((r["sram"] for r in regions), default=0),
        sum(r["flash"] for r in regions), all(np.array_equal(found[name], expected[name]) for name in expected),
    )  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m mirlo_ethos_u.measure", description=__doc__)
    parser.add_argument("models", nargs="+", type=Path, help="models: .onnx, .tflite, .tosa")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N", help="a size that is not known")
    parser.add_argument("--accelerator", default=DEFAULT, help=f"accelerators, with commas (default: {DEFAULT})")
    arguments = parser.parse_args()
    missing = missing_tools()
    if missing:
        raise SystemExit(f"install {', '.join(missing)}")
    sizes = {name: int(size) for name, _, size in (text.partition("=") for text in arguments.dim)}
    print(HEAD)
    for model in arguments.models:
        for accelerator in arguments.accelerator.split(","):
            print(measure(model, accelerator, sizes).row(model.name.partition(".")[0], accelerator), flush=True)


if __name__ == "__main__":
    main()
