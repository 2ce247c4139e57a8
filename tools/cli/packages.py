"""Commands of packages, by the entry point group `mirlo.commands`: `NAME = "module:COMMAND"`."""

from __future__ import annotations

import argparse
from argparse import _SubParsersAction
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mirlo.runtime.entry_points import EntryPoint, offered
from mirlo.runtime.errors import MirloError
from mirlo.runtime.garbage import UsualCollections
from mirlo.runtime.known_packages import COMMANDS, install_command
from mirlo.tools.cli.values import AddCommand

GROUP = "mirlo.commands"


class PackageCommand(NamedTuple):
    """A command of a package: its line of help, the function that adds its arguments, and the one that executes it."""

    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    execute: Callable[[argparse.Namespace], None]
    lasts: bool = False
    """Whether it runs until it is ended, as a server does: then Python collects garbage as usual."""


def add_package_commands(
    parser: argparse.ArgumentParser,
    commands: _SubParsersAction[argparse.ArgumentParser],
    add: AddCommand,
    argv: Sequence[str],
) -> None:
    """Add the command of a package that a command line names; without one, the names of all, for `mirlo --help`.

    No package is imported but the one whose command is run. A known command whose package is missing is an error.
    """
    named = next((word for word in argv if not word.startswith("-")), None)
    if named in commands.choices:
        return
    entries = {entry.name: entry for entry in offered(GROUP)}
    if named in entries:
        _add_command(entries[named], commands, add)
    elif named in COMMANDS:
        parser.error(f"'{named}' is a command of a package that is not installed: {install_command(GROUP, named)}")
    elif named is None:
        for name in sorted({*entries, *COMMANDS}):
            purpose = COMMANDS.get(name) or f"a command of package '{entries[name].package}'"
            missing = "" if name in entries else f" ({install_command(GROUP, name)})"
            commands.add_parser(name, help=purpose + missing)


def add_all_package_commands(commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> None:
    """Add the commands of all installed packages, which imports them."""
    for entry in sorted(offered(GROUP), key=lambda entry: entry.name):
        _add_command(entry, commands, add)


def _add_command(entry: EntryPoint, commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> None:
    from mirlo.runtime.callbacks import Expected, checked, is_none  # `mirlo --help` needs none of these

    command: PackageCommand = entry.load()
    owner, nothing = f"the command '{entry.name}'", Expected("nothing: a command that fails raises an error", is_none)
    added = add(commands, entry.name, command.help)
    checked(command.add_arguments, nothing, owner, MirloError)(added)
    execute = checked(command.execute, nothing, owner, MirloError)
    added.set_defaults(execute=UsualCollections()(execute) if command.lasts else execute)
