"""The command `mirlo lsp`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from mirlo.extend.command import PackageCommand
from mirlo.extend.runtime import MirloError


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--stdio", action="store_true", help="accepted for clients that pass it; has no effect")


def _execute(arguments: Namespace) -> None:
    from mirlo_editor.command import command

    if command([]):
        raise MirloError("the language server did not start")


LSP = PackageCommand(
    "run the language server for editors, on standard input and output", _add_arguments, _execute, lasts=True
)
