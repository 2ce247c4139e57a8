"""Options of `mirlo.compile` that packages add, by the entry point group `mirlo.compile_options`.

    [project.entry-points."mirlo.compile_options"]
    ranks = "package.options:RankOptions"

names an option, and the frozen dataclass that declares it with `compile_option`; all fields are keyword-only. What
installed packages declare are fields of `PackageOptions`. The module of a declaration is imported with the options
themselves: it should import `mirlo.extend.options` alone, which does not import this module.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mirlo.driver.compile_option import CompileOption, CompileOptionError
from mirlo.runtime.entry_points import EntryPoint, offered
from mirlo.runtime.known_packages import install_command
from mirlo.runtime.options import UnknownOption, check_options, declared_options
from mirlo.runtime.records import dataclass

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
