"""`python -m benchmarks.compile.cold [MODEL...] [--against TREE]`: processor time of compilations in new processes.

    python -m benchmarks.compile.cold isnet convnext-qdq --against ../before

A model is one of `benchmarks/models`, or an ONNX file. Nothing is taken from the cache, and one process compiles; the
time of the system counts, too: first touches of memory are there. With `--against`, the same model is compiled by the
Mirlo of another checkout, with its `.venv`, in turns; the last column is the median of the ratios of the pairs: the
seconds depend on what else runs on the machine.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.models import path
from benchmarks.models.large import LARGE

COMPILE = """
import resource, sys, mirlo
mirlo.compile(sys.argv[1], cache=False, jobs=1, threads=1)
usage = resource.getrusage(resource.RUSAGE_SELF)
print(usage.ru_utime + usage.ru_stime)
"""


def seconds(python: str, folder: Path, model: Path) -> float:
    """Return the processor time, of the user and of the system, of a process that compiles a model."""
    result = subprocess.run([python, "-c", COMPILE, str(model)], cwd=folder, capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"{folder}: {model.name} is not compiled:\n{result.stderr.strip()}")
    return float(result.stdout.split()[-1])


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table of the models' times."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile.cold", description=__doc__.split("\n\n")[2])
    parser.add_argument("models", nargs="*", default=list(LARGE), metavar="MODEL", help="a name, or an ONNX file")
    parser.add_argument("--against", type=Path, metavar="TREE", help="another checkout of Mirlo with its environment")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="compilations of each (default: 3)")
    parser.add_argument("--models", dest="folder", metavar="DIR", help="where models with weights are kept")
    options = parser.parse_args(argv)
    print("| model | s | before, s | ratio |\n| --- | ---: | ---: | ---: |")
    for name in options.models:
        model = (Path(name) if name.endswith(".onnx") else path(name, options.folder)).resolve()
        pairs = []
        for _ in range(options.rounds):
            before = options.against and seconds(str(options.against / ".venv/bin/python"), options.against, model)
            pairs.append((seconds(sys.executable, Path.cwd(), model), before or 0.0))
        now, before = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = f"{before:.2f} | {statistics.median(a / b for a, b in pairs):.2f}" if options.against else "|"
        print(f"| {model.stem} | {now:.2f} | {ratio} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
