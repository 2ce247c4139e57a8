"""The commands of the package: `build` and `measure`."""

from __future__ import annotations

import argparse
import sys
from itertools import chain
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(prog="mirlo_onnxruntime_ep", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build the provider's library")
    build.add_argument("-o", dest="output", type=Path, required=True, metavar="FILE")
    build.add_argument("--python", default=sys.executable, help="the interpreter that compiles models")
    measure = commands.add_parser("measure", help="compare with ONNX Runtime's own provider")
    measure.add_argument("models", nargs="*", metavar="MODEL.onnx")
    measure.add_argument("--packages", action="store_true", help="the models in packages that Mirlo's benchmarks know")
    measure.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE", help="the size of a dim")
    measure.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.command == "build":
        from mirlo_onnxruntime_ep import build as builder

        try:
            builder.build(arguments.output.absolute(), arguments.python)
        except builder.BuildError as error:
            sys.exit(f"mirlo_onnxruntime_ep: error: {error}")
        return
    from mirlo_onnxruntime_ep.measure import HEAD, measure_packages, summary
    from mirlo_onnxruntime_ep.measure import measure as measured

    sizes = {name: int(size) for name, _, size in (text.partition("=") for text in arguments.dim)}
    found = ((Path(model).name, measured(model, sizes, arguments.threads)) for model in arguments.models)
    rows = []
    print(HEAD)
    for name, row in chain(found, measure_packages(arguments.threads) if arguments.packages else ()):
        print(row.row(name), flush=True)
        rows.append(row)
    print(f"\n{summary(rows)}")


if __name__ == "__main__":
    main()
