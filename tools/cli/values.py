"""Flags that several commands share, and the parsers of their values."""

from __future__ import annotations

import argparse
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Callable

from mirlo.tools.cli.options import AppendNamed, add_options, argument_type

Shapes = dict[str, tuple[int | str, ...]]

AddCommand = Callable[["_SubParsersAction[ArgumentParser]", str, str], ArgumentParser]
"""Adds a command: its name, its purpose."""


def add_input(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--input",
        metavar="NAME=FILE.npy",
        type=_assignment,
        action=AppendNamed,
        default=[],
        help="the array of an input (default: random numbers; integers are 0 or 1); may be repeated",
    )


def add_model(
    parser: argparse.ArgumentParser, metavar: str, help_text: str, dest: str = "model", *, many: bool = False
) -> None:
    """Add the model, or several, and the flag that takes a sample in their place."""
    parser.add_argument(dest, metavar=metavar, nargs="*" if many else "?", help=help_text)
    parser.add_argument(
        "--sample", metavar="NAME", help="use a model that ships with Mirlo instead of a file, such as mobilenetv2"
    )
    parser.set_defaults(model_dest=dest)


def _assignment(text: str) -> tuple[str, str]:
    # Names may hold '=' too, files of arrays rarely do.
    name, equals, value = text.rpartition("=")
    if not equals or not name or not value:
        raise argparse.ArgumentTypeError(f"expected NAME=FILE.npy, found '{text}'")
    return name, value


def byte_size(text: str) -> int:
    """Parse a number of bytes, with a unit or without."""
    from mirlo.runtime.options import parse_bytes

    return argument_type(parse_bytes)(text)


def positive(text: str) -> int:
    """Parse a number from 1."""
    return _integer(text, 1)


def natural(text: str) -> int:
    """Parse a number from 0."""
    return _integer(text, 0)


def _integer(text: str, least: int) -> int:
    from mirlo.runtime.options import parse_integer  # 10 ms, which `mirlo --help` does not need

    return argument_type(lambda text: parse_integer(text, least))(text)


def add_results(parser: argparse.ArgumentParser) -> None:
    """Add the flags for programs that read results, and for those that need none."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON, also that of an error")
    parser.add_argument("-q", "--quiet", action="store_true", help="print errors and warnings only")


def add_remote(commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> None:
    """Add the arguments of `mirlo remote`."""
    parser = add(commands, "remote", "build the program that runs models on a board without Python, or query a board")
    parser.add_argument(
        "remote",
        metavar="HOST[:PORT]",
        nargs="?",
        type=argument_type(_address),
        help="print the processor and system of this board",
    )
    _add_token(parser)
    add_options(parser, "target", purpose="the board's processor and system (default: this machine's)")
    parser.add_argument(
        "--emit", metavar="FORM", choices=("program", "source"), default="program",
        help="program: compile and link the program; source: write a folder with its C files (default: program)",
    )  # fmt: skip
    parser.add_argument("-o", "--output", metavar="FILE", help="the program or folder to write (default: runner, here)")


def add_board(parser: argparse.ArgumentParser) -> None:
    """Add the flags of commands that run models on a board."""
    parser.add_argument(
        "--remote", metavar="HOST[:PORT]", type=argument_type(_address),
        help="run compiled models on this board, which runs the program of 'mirlo remote'",
    )  # fmt: skip
    _add_token(parser)


def _add_token(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--token-file", metavar="FILE", help="the file of the board's token (default: the variable MIRLO_REMOTE_TOKEN)"
    )


def _address(text: str) -> str:
    from mirlo.runtime.remote.wire import parse_address

    return str(parse_address(text))
