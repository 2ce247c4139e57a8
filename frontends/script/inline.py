"""`@T.inline`: helpers that are inlined where they are called."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import NoReturn

from mirlo.frontends.script.errors import ScriptError
from mirlo.frontends.script.source import ScriptSource, captured_names, parse_object
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class InlineFunction:
    """A helper: its parameters, its syntax tree, and its captured names."""

    name: str
    parameters: tuple[str, ...]
    tree: ast.FunctionDef
    source: ScriptSource
    captured: dict[str, object]

    @staticmethod
    def of(function: Callable[..., object]) -> InlineFunction:
        tree, source = parse_object(function)
        if not isinstance(tree, ast.FunctionDef):
            raise source.error(tree, "an inline function is a plain 'def'")
        arguments = tree.args
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults:
            raise source.error(tree, "an inline function takes plain parameters: no defaults, no *, no **")
        names = tuple(argument.arg for argument in arguments.args)
        return InlineFunction(tree.name, names, tree, source, captured_names(function, tree))

    def __call__(self, *args: object) -> NoReturn:
        raise ScriptError(f"'{self.name}' is an inline function of scripts: call it inside a prim function")
