"""Calls of functions of users in code generators: patterns, checks, generators, rewrites, loaders."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest
from callback_values import MODEL, Generator

import mirlo
import mirlo.extend
from mirlo.extend.codegen import is_op, pattern_table, repeat, rewriter, roll_commands, wildcard
from mirlo.extend.target import Target, register_target
from mirlo.runtime import external, loaders


def of_table(made: Callable[[], Any]) -> None:
    @pattern_table("callbacks")
    def patterns() -> Any:
        return made()

    mirlo.compile(MODEL, "callbacks,llvm", cache=False)


def of_generator_patterns(made: Callable[[], Any]) -> None:
    class Own(Generator):
        def patterns(self) -> Any:
            return made()

    register_target(Target("callbacks", "of a test", codegen=Own))
    mirlo.compile(MODEL, "callbacks,llvm", cache=False)


def of_check(made: Callable[[], Any]) -> None:
    @pattern_table("callbacks")
    def patterns() -> Any:
        return [("relu", is_op("relax.relu")(wildcard()), lambda match: made())]

    mirlo.compile(MODEL, "callbacks,llvm", cache=False)


def of_codegen(made: Callable[[], Any]) -> None:
    class Own(Generator):
        def codegen(self, module: Any) -> Any:
            return made()

    register_target(Target("callbacks", "of a test", codegen=Own))
    mirlo.compile(MODEL, "callbacks,llvm", cache=False)


def of_where(made: Callable[[], Any]) -> None:
    pattern = is_op("relax.relu")(wildcard()).where(lambda op: made())
    register_target(Target("callbacks", "of a test", codegen=Generator))
    of_table(lambda: [("relu", pattern)])


def of_optional(made: Callable[[], Any]) -> None:
    wildcard().optional(lambda pattern: made())


def of_repeat(made: Callable[[], Any]) -> None:
    repeat(wildcard(), lambda pattern: made())


def of_split(made: Callable[[], Any]) -> None:
    roll_commands([1, 2], lambda command: made())


def of_rewriter(made: Callable[[], Any]) -> None:
    @rewriter(is_op("relax.relu")(wildcard()), name="callbacks")
    def replaced(match: Any, b: Any) -> Any:
        return made()

    mirlo.compile(MODEL, pipeline="rewrite{rules=callbacks}", cache=False)


@functools.cache
def compiled_once() -> Any:
    return mirlo.compile(MODEL, cache=False)


def of_loader(made: Callable[[], Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(loaders._LOADERS, "callbacks", lambda artifact: made())
        loaders.load_code(dataclasses.replace(compiled_once().artifact, loader="callbacks"))


def of_external_loader(made: Callable[[], Any]) -> None:
    artifact = external.ExternalArtifact("callbacks", ("f",), data=b"", target="callbacks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(external._LOADERS, "callbacks", lambda artifact, context: made())
        external.load_external("callbacks", artifact, external.LoadContext({}, 1))


KINDS: dict[Callable[..., None], set[str]] = {
    of_table: {"list", "tuple", "dict", "frozenset"},
    of_generator_patterns: {"list", "tuple", "dict", "frozenset"},
    of_check: {"text", "True", "False"},
    of_codegen: set(),
    of_where: {"text", "True", "False"},
    of_optional: set(),
    of_repeat: set(),
    of_split: set(),
    of_rewriter: set(),
    of_loader: set(),
    of_external_loader: set(),
}
"""The functions that call a callback, each with the names of values that are valid results or other errors."""
