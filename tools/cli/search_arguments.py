"""The command lines of what searches: for wrong results, for bugs, for faster kernels, for a place for each part."""

from __future__ import annotations

import argparse
from argparse import _SubParsersAction

from mirlo.tools.cli.options import add_options
from mirlo.tools.cli.remote_arguments import add_board
from mirlo.tools.cli.values import AddCommand, add_input, add_model, natural, positive
from mirlo.tools.fuzz.modes import MODES


def add_searches(commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> None:
    """Add the arguments of `mirlo bisect`, `mirlo fuzz`, `mirlo tune`, `mirlo partition`."""
    _add_bisect(commands, add)
    _add_fuzz(commands, add)
    _add_tune(commands, add)
    _add_partition(commands, add)


def _add_bisect(commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> None:
    parser = add(commands, "bisect", "find the first node and the first pass whose result departs from an oracle's")
    add_model(parser, "MODEL.onnx", "the model")
    parser.add_argument(
        "--against",
        choices=("reference", "onnxruntime"),
        default="reference",
        help="who computes what is expected: onnx's reference evaluator (default), or ONNX Runtime",
    )
    add_input(parser)
    parser.add_argument("--seed", metavar="S", type=natural, default=0, help="of the random inputs (default: 0)")
    parser.add_argument("--rtol", metavar="R", type=float, help="relative tolerance (default: by element type)")
    parser.add_argument("--atol", metavar="A", type=float, help="tolerance, times the largest value (default: rtol)")
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="the folder for what reproduces it (default: MODEL-bisect, here)"
    )
    add_board(parser)
    add_options(parser, "target", "threads", "pipeline", "shapes", "dims")


def _add_fuzz(commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> None:
    parser = add(commands, "fuzz", "try random models against the oracles, or hostile input")
    subjects = "; ".join(f"{name}: {mode.doc}" for name, mode in MODES.items())
    parser.add_argument("subject", choices=tuple(MODES), help=subjects)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--count", metavar="N", type=positive, default=100, help="how many (default: 100)")
    length.add_argument("--minutes", metavar="M", type=positive, help="as many as there is time for")
    parser.add_argument("--seed", metavar="S", type=natural, default=0, help="the first seed (default: 0)")
    add_options(parser, "target", "threads")
    parser.add_argument(
        "--opt-level",
        metavar="N",
        type=int,
        choices=range(4),
        help="LLVM's, or the C compiler's, level of optimization",
    )
    parser.add_argument("--processes", metavar="N", type=positive, default=1, help="processes at a time (default: 1)")
    parser.add_argument("--timeout", metavar="S", type=positive, default=120, help="seconds for one (default: 120)")
    parser.add_argument("-o", "--output", metavar="DIR", help="write the models that show a bug to this folder")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_tune(commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> None:
    parser = add(commands, "tune", "search for faster kernels of a model; compilations use what is found")
    add_model(parser, "MODEL", "an ONNX model, or IR; none: print what was found")
    parser.set_defaults(needs_model=False)
    parser.add_argument("--seconds", metavar="S", type=positive, default=60, help="time to spend (default: 60)")
    parser.add_argument(
        "--kernel", dest="kernel_names", metavar="NAME", action="append", default=[],
        help="tune this kernel only, as 'explain' names it; may be given several times",
    )  # fmt: skip
    parser.add_argument("--database", metavar="FILE", help="where to keep what is found (default: with the cache)")
    add_options(parser, "target", "threads")
    parser.add_argument("--ray", metavar="ADDRESS", help="time kernels on a Ray cluster; 'local' starts one here")
    add_board(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_options(parser, "shapes", "dims")


def _add_partition(commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> None:
    parser = add(commands, "partition", "tell which parts of a model go to which target, and why; makes no code")
    add_model(parser, "MODEL", "an ONNX model, or IR")
    add_options(parser, "target", required=True)
    parser.add_argument(
        "--report", dest="reports", metavar="FILE", action="append", default=[],
        help="write all that is known to a file: .html, .json, .txt; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--expect", metavar="FILE.json", help="fail with what is different from a report that was written before"
    )
    parser.add_argument(
        "--node", metavar="NAME", help="tell only about this node: its name or operator, all that was tried"
    )
    parser.add_argument("--attempts", action="store_true", help="tell for every node all patterns that were tried")
    add_options(parser, "placement", "threads", "shapes", "dims", "cache", "jobs")
