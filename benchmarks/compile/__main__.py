"""`python -m benchmarks.compile [MODEL...]`: how long models take to compile with Mirlo and with other compilers.

    python -m benchmarks.compile --against iree,tvm --python tvm=/path/to/bin/python

prints a table of the seven models that Mirlo's claims are about, or of those that are named; a model is one of
`benchmarks/models`, or an ONNX file. The exit code is 1 where Mirlo takes more than half the time of another compiler.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.__main__ import CLAIMED
from benchmarks.compile.peers import CompileTimes, markdown, measure
from benchmarks.models import all_names, path
from mirlo.tools.bench.options import parse_engines, parse_interpreter
from mirlo.tools.cli.options import argument_type
from mirlo.tools.cli.progress import Progress


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write the file."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    models = []
    for name in arguments.models:
        if not name.endswith(".onnx") and name not in all_names():
            parser.error(f"no model is named '{name}'; there are: {', '.join(all_names())}, and files named .onnx")
        models.append(Path(name) if name.endswith(".onnx") else path(name, arguments.folder))
    pythons, threads, rounds = dict(arguments.python), arguments.threads, arguments.rounds
    with Progress("compile", False) as progress:
        rows = [measure(model, arguments.against, pythons, threads, rounds, progress) for model in models]
    times = CompileTimes(rows, threads, rounds)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(times.as_json(), indent=1) + "\n", encoding="utf-8")
    print(markdown(times), end="")
    return 0 if times.is_within_limit() else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile", description=__doc__.split("\n\n")[2])
    parser.add_argument("models", nargs="*", default=list(CLAIMED), metavar="MODEL", help="a name, or an ONNX file")
    parser.add_argument(
        "--against",
        default="iree,tvm",
        type=argument_type(parse_engines),
        metavar="NAME,...",
        help="the engines (default: iree,tvm)",
    )
    parser.add_argument(
        "--python", action="append", default=[], metavar="NAME=PATH", type=argument_type(parse_interpreter),
        help="the Python in whose environment an engine is installed",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="of the compiled model (default: 1)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="compilations of each (default: 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the times there, for benchmarks.page")
    parser.add_argument("--models", dest="folder", metavar="DIR", help="where models with weights are kept")
    return parser


if __name__ == "__main__":
    sys.exit(main())
