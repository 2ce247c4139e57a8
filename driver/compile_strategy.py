"""Strategies that packages add to a compilation for their options: the entry point group `mirlo.strategies`.

    [project.entry-points."mirlo.strategies"]
    ranks = "package.strategy:RankStrategy"

names an option, of the group `mirlo.compile_options`, and a subclass of `CompileStrategy`. It is imported where the
option has another value than its default.
"""

from __future__ import annotations

import dataclasses
import os
from abc import ABC
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from mirlo.driver.compile_option import CompileOptionError
from mirlo.driver.package_options import PackageOptions
from mirlo.driver.request import CompileFunction, CompileRequest
from mirlo.runtime.entry_points import EntryPoint, offered

GROUP = "mirlo.strategies"

Options = TypeVar("Options")


class CompileStrategy(ABC, Generic[Options]):
    """The compilation of a model with an option of a package; each method defaults to that without the option."""

    options_type: ClassVar[type[Any]]
    """The dataclass that declares the options."""

    def __init__(self, option: str, options: Options) -> None:
        self.option, self.options = option, options

    def target(self, target: str | Sequence[str]) -> str | Sequence[str]:
        """Return the targets of the model."""
        return target

    def compile(self, request: CompileRequest, compile_request: CompileFunction) -> Any:
        """Return the result of `mirlo.compile`; `compile_request` compiles one request."""
        return compile_request(request)

    def first_passes(self) -> str:
        """Return the passes that run before those of the target."""
        return ""

    def metadata(self) -> Mapping[str, object]:
        """Return entries for the metadata of a compiled model."""
        return {}

    def save(self, compiled: Any, path: Path) -> list[tuple[Path, Any]]:
        """Save the result of `compile`; return each file with its model."""
        compiled.save(path)
        return [(path, compiled)]


def requested_strategies(options: object) -> list[CompileStrategy[Any]]:
    """Return the strategies of the options of packages that have other values than their defaults."""
    defaults = {each.name: each.default for each in dataclasses.fields(PackageOptions)}
    return [
        _strategy(entry, options)
        for entry in offered(GROUP)
        if entry.name in defaults and getattr(options, entry.name, defaults[entry.name]) != defaults[entry.name]
    ]


def strategies_for(options: Mapping[str, object]) -> list[CompileStrategy[Any]]:
    """Return the strategies for options of packages by name."""
    return requested_strategies(PackageOptions(**options))


def with_strategies(strategies: Sequence[CompileStrategy[Any]], compile_request: CompileFunction) -> CompileFunction:
    """Return a function that compiles a request by strategies, the first one outermost."""
    for strategy in reversed(strategies):
        compile_request = partial(strategy.compile, compile_request=compile_request)
    return compile_request


def save_compiled(options: Mapping[str, object], compiled: Any, path: str | os.PathLike[str]) -> list[tuple[Path, Any]]:
    """Save a compiled model as the options of packages request; return each file with its model."""
    names = {each.name for each in dataclasses.fields(PackageOptions)}
    strategies = strategies_for({name: value for name, value in options.items() if name in names})
    if strategies:
        return strategies[0].save(compiled, Path(path))
    compiled.save(path)
    return [(Path(path), compiled)]


def _strategy(entry: EntryPoint, options: object) -> CompileStrategy[Any]:
    kind = entry.load_for("strategy", CompileOptionError)
    if not isinstance(kind, type) or not issubclass(kind, CompileStrategy):
        raise CompileOptionError(entry.unexpected(kind, "a subclass of CompileStrategy"))
    own = kind.options_type
    return kind(entry.name, own(**{each.name: getattr(options, each.name) for each in dataclasses.fields(own)}))
