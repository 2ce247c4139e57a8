"""`python -m benchmarks.gpu`: whether an NVIDIA GPU computes what it should, and how fast, beside PyTorch.

    python -m benchmarks.gpu --build FOLDER [--target 'nvvm{chip=sm_90a}'] [--groups products models]
    python -m benchmarks.gpu --run FOLDER [--minutes 8] [--only WORD...] [--sanitizer memcheck] [--again]
    python FOLDER [--minutes 8] ...

The first needs Mirlo's compiler, and no GPU; the others, on a machine with a GPU, numpy, ml_dtypes and cuda-bindings.
Without either, both are done here. `FOLDER/results.md` has what was found.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .unit import KitError


def main(argv: Sequence[str] | None = None) -> int:
    """Build, run, or both."""
    arguments = _parser().parse_args(argv)
    try:
        if arguments.build:
            return _build(arguments.build, arguments)
        if arguments.run:
            return _run(arguments.run, arguments)
        _require_gpu(arguments.target or "nvvm")
        with tempfile.TemporaryDirectory() as folder:
            return _build(Path(folder), arguments) or _run(Path(folder), arguments)
    except KitError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2


def _require_gpu(target: str) -> None:
    """Raise an error, before minutes of compilation, if there is nothing to run on."""
    if target.startswith("nvvm"):
        from mirlo.targets.nvvm.device import CudaError, first_gpu

        try:
            first_gpu()
        except CudaError as problem:
            raise KitError(f"{problem}; or build a folder for another machine, with --build FOLDER") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, metavar="FOLDER", help="compile what is to be run into a folder")
    parser.add_argument("--run", type=Path, metavar="FOLDER", help="run a folder that was built")
    group = parser.add_argument_group("building")
    group.add_argument("--target", default="", help="for which chip, 'nvvm{chip=sm_90a}'; that of this machine")
    group.add_argument("--groups", nargs="+", default=[], help="what of it: products, models ...; all by default")
    group.add_argument("--cache", help="where the benchmark models are kept")
    group.add_argument("--wheels", nargs="*", default=[], help="packages that go along: ml_dtypes cuda-bindings")
    group.add_argument("--python", default="", help="the version of Python that these are for, such as 3.12")
    run = parser.add_argument_group("running")
    run.add_argument("--minutes", type=float, default=0.0, help="start no unit after so long")
    run.add_argument("--only", nargs="+", default=[], metavar="WORD", help="units with one of these in their names")
    run.add_argument("--sanitizer", default="", choices=("memcheck", "racecheck", "initcheck", "synccheck"),
                     help="run the small ones under compute-sanitizer, with this tool")  # fmt: skip
    run.add_argument("--again", action="store_true", help="what is done already, too")
    run.add_argument("--checks-only", action="store_true", help="measure nothing")
    run.add_argument("--inductor", action="store_true", help="times of models by TorchInductor too, half a minute each")
    return parser


def _build(folder: Path, arguments: Any) -> int:
    from .build.make import Options, build

    target = arguments.target or "nvvm"
    options = Options(target, arguments.groups, arguments.cache, arguments.wheels, arguments.python)
    start = time.monotonic()
    result = build(folder, options, lambda name: print(f"[{time.monotonic() - start:.0f} s] {name}", flush=True))
    for name, why in result.left_out:
        print(f"left out: {name}: {why}")
    print(f"{len(result.units)} units, {result.size / 1e6:.1f} MB in {folder}")
    return 0


def _run(folder: Path, arguments: Any) -> int:
    from .run import Options, run

    options = Options(arguments.minutes, arguments.only, arguments.sanitizer, arguments.again, arguments.checks_only,
                      arguments.inductor)  # fmt: skip
    return 1 if run(folder, options) else 0


if __name__ == "__main__":
    sys.exit(main())
