"""`mirlo remote`: the program that runs models on a board, and the description of such a board."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.errors import CommandError

if TYPE_CHECKING:
    from mirlo.runtime.remote.board import Board
    from mirlo.tools.remote import BoardOptions


def board_options(arguments: Arguments) -> BoardOptions | None:
    """Return the board on which models run; None for this machine."""
    if arguments.remote is None:
        if arguments.token_file is not None:
            raise CommandError("'--token-file' is the token of a runner: name that with --remote HOST")
        return None
    from mirlo.tools.remote import BoardOptions

    return BoardOptions(arguments.remote, arguments.token_file)


def execute(arguments: Arguments) -> None:
    """Write the runner, or print what a board reports."""
    options = board_options(arguments)
    if options is None:
        _write(arguments)
        return
    if arguments.output is not None or arguments.target is not None:
        raise CommandError("a board's report has no -o and no --target: leave out HOST to write the runner")
    board = options.connect()
    facts = board.facts
    print(f"{board.address}: {facts.arch}-{facts.system}, {facts.cores} cores")
    print(f"takes models up to {facts.limit >> 20} MiB, and calls up to {facts.seconds} s")
    print(f"features: {', '.join(_features(board)) or 'none beyond those of every such processor'}")
    board.close()


def _write(arguments: Arguments) -> None:
    from mirlo.passes.byoc.target_list import Targets
    from mirlo.targets.llvm.library.runner import FORMS
    from mirlo.targets.llvm.options import parse_options

    host = Targets.parse(arguments.target or "llvm").host
    if host is None or host.name != "llvm":
        raise CommandError(f"the runner is for a processor of target 'llvm', found --target '{arguments.target}'")
    default = {"program": "runner", "source": "runner-source"}[arguments.emit]
    output = Path(arguments.output or default)
    for path in FORMS[arguments.emit](output, parse_options(host.options).processor):
        print(f"wrote {path}: {path.stat().st_size} bytes")


def _features(board: Board) -> list[str]:
    """Return the features of a board's processor that generated code may use."""
    from mirlo.targets.llvm.cpus import USED

    return board.features(sorted(USED.get(board.facts.arch, ())))
