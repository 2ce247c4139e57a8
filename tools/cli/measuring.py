"""The command lines of `mirlo cache` and `mirlo bench`."""

from __future__ import annotations

import argparse
from argparse import _SubParsersAction
from collections.abc import Callable

from mirlo.tools.cli.options import AppendNamed, add_options
from mirlo.tools.cli.values import AddCommand, byte_size

MAX_GAP_MS = 60_000.0
"""The longest gap between calls."""


def add_cache(commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> None:
    """Add the arguments of `mirlo cache`."""
    parser = add(commands, "cache", "look at the cache of compiled kernels and models, and keep it small")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, purpose in {
        "path": "print the folder",
        "list": "list the entries, the longest unused first",
        "size": "tell how much there is, of what, and the limit",
        "clear": "remove all entries",
        "verify": "read all entries, and remove those that are damaged",
    }.items():
        _add_folder(actions.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}."))
    limit = actions.add_parser("limit", help="set how large it may grow", description="Set how large it may grow.")
    limit.add_argument("limit", metavar="SIZE", type=byte_size, help="bytes, or such as 500MiB and 8GiB")
    _add_folder(limit)


def add_bench(
    commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand, positive: Callable[[str], int]
) -> argparse.ArgumentParser:
    """Add the arguments of `mirlo bench`."""
    parser = add(commands, "bench", "time models beside other engines, and their kernels beside the machine's limits")
    parser.add_argument("models", metavar="MODEL.onnx", nargs="+", help="the models")
    parser.add_argument(
        "--against", dest="engines", metavar="NAME,...", type=engine_names, default=(),
        help=f"other engines: {', '.join(_engine_list())}",
    )  # fmt: skip
    parser.add_argument(
        "--threads", dest="thread_counts", metavar="N,...", type=lambda text: _counts(text, positive), default=(1,),
        help="numbers of threads, each measured for itself (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--gap", dest="gaps", metavar="MS,...", type=gaps_of, default=(0.0,),
        help="milliseconds between calls, each measured for itself (default: 0, one call after the other)",
    )  # fmt: skip
    parser.add_argument(
        "--spinner", action="store_true", help="let another process take the time of one core while models run"
    )
    parser.add_argument(
        "--pressure", action="store_true", help="let another process stream through caches and memory while models run"
    )
    parser.add_argument(
        "--cpu-time", action="store_true", help="measure CPU time: for one thread, on a machine with other work"
    )
    parser.add_argument(
        "--seconds", metavar="S", type=float, default=10.0, help="of runs, for each model and threads (default: 10)"
    )
    parser.add_argument(
        "--python", metavar="NAME=PATH", type=interpreter_of, action=AppendNamed, default=[],
        help="the Python in whose environment an engine is installed",
    )  # fmt: skip
    add_options(parser, "target", "shapes")
    add_options(parser, "dims", purpose="the size with which a dynamic dim runs; the model is compiled for any")
    _add_outputs(parser)
    return parser


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for what is printed and written."""
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="of the random inputs (default: 0)")
    parser.add_argument(
        "--kernels", metavar="N", type=int, default=12, help="rows of the table of kernels; 0 for none (default: 12)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="write a page (.html) with timelines, memory plans and roofline plots, the last alone (.svg, .png), a "
        "trace for Perfetto (.trace.json), .json or .md",
    )


def _engine_list() -> list[str]:
    from mirlo.tools.bench.engines import ENGINES

    return [name for name in ENGINES if name != "mirlo"]


def engine_names(text: str) -> tuple[str, ...]:
    """Parse the value of `--against`."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in _engine_list():
            raise argparse.ArgumentTypeError(f"there is no engine '{name}'; known: {', '.join(_engine_list())}")
    return names


def gaps_of(text: str) -> tuple[float, ...]:
    """Return the milliseconds that `--gap` lists."""
    try:
        gaps = tuple(dict.fromkeys(float(word) for word in text.split(",")))
    except ValueError:
        gaps = ()
    if not gaps or not all(0 <= gap <= MAX_GAP_MS for gap in gaps):
        raise argparse.ArgumentTypeError(f"expected milliseconds from 0 to {MAX_GAP_MS:g}, as 0,50; found '{text}'")
    return gaps


def _counts(text: str, positive: Callable[[str], int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(positive(word.strip()) for word in text.split(",")))


def interpreter_of(text: str) -> tuple[str, str]:
    """Parse the value of `--python`: an engine, and the interpreter that has it."""
    name, equals, path = text.partition("=")
    if not equals or name not in _engine_list():
        raise argparse.ArgumentTypeError(f"expected NAME=PATH with one of {', '.join(_engine_list())}, found '{text}'")
    return name, path


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cache-dir", metavar="DIR", help="the folder of the cache (default: this user's)")
