"""The command `mirlo lsp`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from mirlo.extend.command import PackageCommand
from mirlo.extend.runtime import MirloError


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--stdio", action="store_true", help="what some clients add; has no effect")


def _execute(arguments: Namespace) -> None:
    from mirlo_editor.command import command

    if command([]):
        raise MirloError("the language server did not start")


LSP = PackageCommand("answer an editor on standard input and output", _add_arguments, _execute)
