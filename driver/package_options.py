"""Options of `mirlo.compile` that packages add, by the entry point group `mirlo.compile_options`.

    [project.entry-points."mirlo.compile_options"]
    ranks = "package.options:RankOptions"

names an option, and the frozen dataclass that declares it with `compile_option`; all fields are keyword-only. What
installed packages declare are fields of `PackageOptions`. The module of a declaration is imported with the options
themselves: it should import `mirlo.extend.options` alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from mirlo.runtime.entry_points import EntryPoint, offered
from mirlo.runtime.errors import MirloError
from mirlo.runtime.known_packages import install_command
from mirlo.runtime.options import (
    OptionDeclaration,
    OptionFlag,
    UnknownOption,
    ValueKind,
    check_options,
    declare,
    declared_options,
)
from mirlo.runtime.records import dataclass

WITH_CACHES, FRAMEWORKS = "models with caches of keys and values", "models of other frameworks"


class CompileOptionError(MirloError, ValueError):
    """An option with a value that it does not take."""

    error_code = "MIR0615"
    remedy = "Give the option a value that the message expects; docs/options.md has all of them."


@dataclass(frozen=True)
class CompileOption(OptionDeclaration):
    """The declaration of an option of a compilation."""

    key: Callable[[Any], object] | None = lambda value: value
    """Return what stands for a value in cache keys, an `object` for what no key can hold; None where results are the
    same for all values."""
    own_pass: str = ""
    """The pass that does what the option asks for: pipelines of the caller name it themselves."""
    of_model: bool = False
    """Whether values name parts of one model, and cannot stand for many models."""
    only_for: str = ""
    """The models that have the option, `WITH_CACHES` or `FRAMEWORKS`; empty for all."""


def compile_option(default: object, help: str, *flags: OptionFlag, kind: ValueKind, **details: Any) -> Any:
    """Declare a field of `CompileArguments`; `details` are those of `CompileOption`."""
    return declare(default, CompileOption(help, flags, kind, **details), is_shown=details.get("key", True) is not None)


def unkeyed(value: object) -> object:
    """Return a cache key for a value with which a compilation cannot be cached."""
    return value and object()


GROUP = "mirlo.compile_options"


def options_of_packages(entries: Iterable[EntryPoint]) -> tuple[type, ...]:
    """Return the dataclasses that entry points name, each once."""
    kinds: dict[type, EntryPoint] = {}
    for entry in entries:
        kinds.setdefault(_loaded(entry), entry)
    return tuple(kinds)


def _loaded(entry: EntryPoint) -> type:
    kind = entry.load_for("option", CompileOptionError)
    if (
        not isinstance(kind, type)
        or not dataclasses.is_dataclass(kind)
        or not all(each.kw_only for each in dataclasses.fields(kind))
        or not isinstance(declared_options(kind).get(entry.name), CompileOption)
    ):
        expected = f"a dataclass with the keyword-only option '{entry.name}', declared with `compile_option`"
        raise CompileOptionError(entry.unexpected(kind, expected))
    return kind


def joined_options(kinds: tuple[type, ...]) -> type:
    """Return a dataclass with the options of several; raise an error for a name that two of them have."""
    owners: dict[str, type] = {}
    for kind in kinds:
        for each in dataclasses.fields(kind):
            other = owners.setdefault(each.name, kind)
            if other is not kind:
                raise CompileOptionError(
                    f"{each.name}: two packages have an option of this name, in {other.__module__} and "
                    f"{kind.__module__}: uninstall one of them"
                )

    def check(self: object) -> None:
        check_options(self, CompileOptionError)

    namespace = {"__doc__": "The options of installed packages.", "__module__": __name__, "__post_init__": check}
    return dataclass(frozen=True)(type("PackageOptions", tuple(reversed(kinds)), namespace))


def require_package_of(names: Iterable[str]) -> None:
    """Raise an error for the first of these options that a package has which is not installed."""
    for name in names:
        command = install_command(GROUP, name)
        if command is not None:
            raise UnknownOption(f"{name} is an option of a package that is not installed: {command}")


if TYPE_CHECKING:

    @dataclass(frozen=True)
    class PackageOptions:
        """The options of installed packages."""

        def __init__(self, **options: object) -> None: ...

else:
    PackageOptions = joined_options(options_of_packages(offered(GROUP)))
