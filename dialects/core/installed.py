"""Registration: functions in tables, modules of a package, entry points of installed packages."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

_FORMS = {
    "targets": "module:NAME",
    "dialects": "module:NAME",
    "passes": "module",
    "rules": "module",
    "loaders": "module:NAME",
    "frontends": "module:NAME",
    "library_forms": "module:NAME",
}
GROUPS = {f"mirlo.{name}": form for name, form in _FORMS.items()}
"""The entry point groups that Mirlo reads, and what an entry names: an object, or a module that registers."""

F = TypeVar("F")
Entry = TypeVar("Entry")


def register_in(table: dict[str, Entry], names: Iterable[str]) -> Callable[[F], F]:
    """Return a decorator that enters a function in a table under these names; the caller declares which it takes."""

    def register(function: F) -> F:
        for name in names:
            table[name] = cast("Entry", function)
        return function

    return register


@cache
def import_modules(package: str) -> None:
    """Import all modules of a package, once: each registers what it has."""
    import pkgutil  # here: what starts quickly asks for entry points only

    parent = importlib.import_module(package)
    for module in pkgutil.iter_modules(parent.__path__):
        importlib.import_module(f"{package}.{module.name}")


def offered(group: str) -> list[EntryPoint]:
    """Return the entry points of a group, of all installed packages."""
    return list(_of_group(tuple(sys.path), group))


def package_of(entry: EntryPoint) -> str:
    """Return the name of the package that has an entry point."""
    return entry.dist.name if entry.dist else entry.value


def declared_groups() -> list[str]:
    """Return the groups of Mirlo, by their names, in which packages declare entry points."""
    return sorted(group for group in _all(tuple(sys.path)).groups if group.startswith("mirlo."))


@cache
def _of_group(path: tuple[str, ...], group: str) -> tuple[EntryPoint, ...]:
    return tuple(_all(path).select(group=group))


@cache
def _all(path: tuple[str, ...]) -> EntryPoints:
    """Return all entry points, cached per import path: reading a file of every package takes milliseconds."""
    # Imported lazily: a tenth of the start-up time of a command that does not need it.
    from importlib.metadata import entry_points

    result: EntryPoints = entry_points()  # type: ignore[assignment]
    return result
