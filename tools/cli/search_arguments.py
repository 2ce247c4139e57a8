"""The command lines of `mirlo bisect`, `fuzz`, `tune` and `partition`."""

from __future__ import annotations

import argparse
from argparse import _SubParsersAction

from mirlo.tools.cli.options import add_options
from mirlo.tools.cli.values import AddCommand, add_board, add_input, add_model, add_results, natural, positive
from mirlo.tools.fuzz.modes import MODES


def add_searches(commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> None:
    """Add the arguments of `mirlo bisect`, `mirlo fuzz`, `mirlo tune`, `mirlo partition`."""
    _add_bisect(commands, add)
    _add_fuzz(commands, add)
    _add_tune(commands, add)
    _add_partition(commands, add)


def _add_bisect(commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> None:
    parser = add(commands, "bisect", "find the first node and the first pass with a wrong result")
    add_model(parser, "MODEL.onnx", "the model")
    parser.add_argument(
        "--against",
        choices=("reference", "onnxruntime", "definitions"),
        default="reference",
        help="the source of expected results: the reference evaluator of onnx (default), ONNX Runtime, or the model, "
        "whose rules, passes and schedules are compared without inputs and tolerances",
    )
    add_input(parser)
    parser.add_argument("--seed", metavar="S", type=natural, default=0, help="seed of random inputs (default: 0)")
    parser.add_argument("--rtol", metavar="R", type=float, help="relative tolerance (default: by element type)")
    parser.add_argument(
        "--atol", metavar="A", type=float, help="absolute tolerance, relative to the largest value (default: rtol)"
    )
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="the folder of the reproducer (default: MODEL-bisect, here)"
    )
    add_board(parser)
    add_options(parser, "target", "threads", "pipeline", "shapes", "dims")


def _add_fuzz(commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> None:
    parser = add(commands, "fuzz", "test with random models or hostile input")
    subjects = "; ".join(f"{name}: {mode.doc}" for name, mode in MODES.items())
    parser.add_argument("subject", choices=tuple(MODES), help=subjects)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--count", metavar="N", type=positive, default=100, help="number of inputs (default: 100)")
    length.add_argument("--minutes", metavar="M", type=positive, help="stop after M minutes")
    parser.add_argument("--seed", metavar="S", type=natural, default=0, help="the first seed (default: 0)")
    add_options(parser, "target", "threads")
    parser.add_argument(
        "--opt-level",
        metavar="N",
        type=int,
        choices=range(4),
        help="optimization level of LLVM, or of the C compiler (graphs: all of them by default)",
    )
    parser.add_argument("--processes", metavar="N", type=positive, default=1, help="number of processes (default: 1)")
    parser.add_argument(
        "--timeout", metavar="S", type=positive, default=120, help="seconds of a processor for an input (default: 120)"
    )
    parser.add_argument("-o", "--output", metavar="DIR", help="write models that show a bug to this folder")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_tune(commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> None:
    parser = add(
        commands, "tune", "search for faster schedules of a model's kernels, and store them for later compilations"
    )
    add_model(parser, "MODEL", "an ONNX model, or IR; without one, print the stored results")
    parser.set_defaults(needs_model=False)
    parser.add_argument("--seconds", metavar="S", type=positive, default=60, help="time limit in seconds (default: 60)")
    parser.add_argument(
        "--kernel", dest="kernel_names", metavar="NAME", action="append", default=[],
        help="tune this kernel only, by its name in 'explain'; may be repeated",
    )  # fmt: skip
    parser.add_argument("--database", metavar="FILE", help="the file of results (default: the one beside the cache)")
    add_options(parser, "target", "threads")
    parser.add_argument("--ray", metavar="ADDRESS", help="measure on a Ray cluster; 'local' starts one on this machine")
    add_board(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_options(parser, "shapes", "dims")


def _add_partition(commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> None:
    parser = add(
        commands, "partition", "show which target compiles which part of a model, and why, without compiling it"
    )
    add_model(parser, "MODEL", "an ONNX model, or IR")
    add_options(parser, "target", required=True)
    parser.add_argument(
        "--report", dest="reports", metavar="FILE", action="append", default=[],
        help="write the full report to a file: .html, .json or .txt; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--expect", metavar="FILE.json", help="compare with this earlier report, and fail if it differs"
    )
    parser.add_argument(
        "--node", metavar="NAME", help="show all attempts at this node, or at the nodes of this operator"
    )
    add_results(parser)
    parser.add_argument("--attempts", action="store_true", help="list all patterns that were tried at every node")
    add_options(parser, "placement", "threads", "shapes", "dims", "cache", "jobs")
