"""`@T.inline`: helpers that are inlined where they are called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirlo.frontends.script.errors import ScriptError
from mirlo.frontends.script.source import ScriptSource, captured_names, parse_object

if TYPE_CHECKING:
    import ast


@dataclass(frozen=True)
class InlineFunction:
    """A helper: its parameters, its syntax tree, and its captured names."""

    name: str
    parameters: tuple[str, ...]
    tree: ast.FunctionDef
    source: ScriptSource
    captured: dict[str, Any]

    @staticmethod
    def of(function: Callable[..., Any]) -> InlineFunction:
        tree, source = parse_object(function)
        arguments = tree.args
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults:
            raise source.error(tree, "an inline function takes plain parameters: no defaults, no *, no **")
        names = tuple(argument.arg for argument in arguments.args)
        return InlineFunction(tree.name, names, tree, source, captured_names(function, tree))

    def __call__(self, *args: Any) -> Any:
        raise ScriptError(f"'{self.name}' is an inline function of scripts: call it inside a prim function")
