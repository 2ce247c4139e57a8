"""Commands read arguments that their parsers declare."""

from __future__ import annotations

import argparse
import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from commands import ROOT

from mirlo.tools.cli import COMMANDS
from mirlo.tools.cli.arguments import Arguments, make_parser
from mirlo.tools.cli.options import OptionsParser

OF_ALL = {"command", "result", "show", *(n for n, value in vars(Arguments).items() if isinstance(value, property))}
OTHERS = {"mirlo.tools.cli.library": {"emit", "kernel", "target"}}
"""What a module reads for another command: `mirlo compile --emit library`."""


@cache
def declared() -> dict[str, set[str]]:
    """Return the arguments by the module of their command, also those of its own commands."""
    result: dict[str, set[str]] = defaultdict(set)
    for name, parser in subparsers(make_parser()).items():
        for each in (parser, *subparsers(parser).values()):
            assert isinstance(each, OptionsParser)
            each.add_pending()
            result[COMMANDS[name]] |= {action.dest for action in each._actions}
    return result


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return {name: each for action in actions for name, each in action.choices.items()}


@pytest.mark.parametrize("module", sorted(set(COMMANDS.values())))
def test_what_commands_read_is_declared(module: str) -> None:
    tree = ast.parse((ROOT / Path(*module.split(".")[1:]).with_suffix(".py")).read_text(encoding="utf-8"))
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    read = {each.attr for each in attributes if isinstance(each.value, ast.Name) and each.value.id == "arguments"}
    assert read - OF_ALL - OTHERS.get(module, set()) <= declared()[module]
