"""The command line of `mirlo remote`, and the flags of commands that run models on a board."""

from __future__ import annotations

import argparse
from argparse import _SubParsersAction

from mirlo.tools.cli.options import add_options, argument_type
from mirlo.tools.cli.values import AddCommand


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
