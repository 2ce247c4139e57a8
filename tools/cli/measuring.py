"""The command lines of `mirlo cache` and `mirlo bench`."""

from __future__ import annotations

import argparse
from argparse import _SubParsersAction

from mirlo.tools.cli.options import add_options
from mirlo.tools.cli.values import AddCommand, add_board, add_model, add_results, byte_size


def add_cache(commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> None:
    """Add the arguments of `mirlo cache`."""
    parser = add(commands, "cache", "inspect and clear the cache of compiled kernels and models")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, purpose in {
        "path": "print the folder of the cache",
        "list": "list entries, the least recently used first",
        "size": "print the size of the cache by kind of entry, and its limit",
        "clear": "remove all entries",
        "verify": "check all entries, and remove damaged ones",
    }.items():
        _add_folder(actions.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}."))
    limit = actions.add_parser("limit", help="set the size limit", description="Set the size limit.")
    limit.add_argument(
        "limit", metavar="SIZE", type=byte_size, help="a number of bytes, with an optional unit: 500MiB, 8GiB"
    )
    _add_folder(limit)


def add_bench(commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> argparse.ArgumentParser:
    """Add the arguments of `mirlo bench`."""
    parser = add(
        commands, "bench", "measure models beside other engines, and their kernels beside the machine's limits"
    )
    add_model(parser, "MODEL.onnx", "the models", "models", many=True)
    add_options(parser, of=_measurement_options)
    add_options(parser, "target", "shapes", "schedules", "tune")
    add_options(
        parser, "dims", purpose="the size of a dynamic dim in runs; the model is compiled for any size; may be repeated"
    )
    add_board(parser)
    _add_outputs(parser)
    return parser


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for what is printed and written."""
    parser.add_argument(
        "--kernels", metavar="N", type=int, default=12, help="number of kernels to print, 0 for none (default: 12)"
    )
    add_results(parser)
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="write a page (.html) with timelines, memory plans and roofline plots, the last alone (.svg, .png), a "
        "trace for Perfetto (.trace.json), .json or .md",
    )


def _measurement_options() -> type:
    from mirlo.tools.bench.options import MeasurementOptions

    return MeasurementOptions


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cache-dir", metavar="DIR", help="the folder of the cache (default: this user's)")
