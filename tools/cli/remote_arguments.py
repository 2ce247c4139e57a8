"""The command line of `mirlo remote`, and the flags of commands that run models on a board."""

from __future__ import annotations

import argparse
from argparse import _SubParsersAction

from mirlo.tools.cli.options import add_options, argument_type
from mirlo.tools.cli.values import AddCommand


def add_remote(commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> None:
    """Add the arguments of `mirlo remote`."""
    parser = add(commands, "remote", "write the program that runs models on a board without Python, or ask one")
    parser.add_argument(
        "remote", metavar="HOST[:PORT]", nargs="?", type=argument_type(_address), help="print what runs there"
    )
    _add_token(parser)
    add_options(parser, "target", purpose="the board's processor and system (default: this machine's)")
    parser.add_argument(
        "--emit", metavar="FORM", choices=("program", "source"), default="program",
        help="'program' is compiled and linked here, 'source' is a folder with its files in C (default: program)",
    )  # fmt: skip
    parser.add_argument("-o", "--output", metavar="FILE", help="the program or folder to write (default: runner, here)")


def add_board(parser: argparse.ArgumentParser) -> None:
    """Add the flags that let models run on a board."""
    parser.add_argument(
        "--remote", metavar="HOST[:PORT]", type=argument_type(_address),
        help="run what is compiled on a board with the runner of 'mirlo remote'",
    )  # fmt: skip
    _add_token(parser)


def _add_token(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--token-file", metavar="FILE", help="the runner's token (default: the variable MIRLO_REMOTE_TOKEN)"
    )


def _address(text: str) -> str:
    from mirlo.runtime.remote.wire import parse_address

    return str(parse_address(text))
