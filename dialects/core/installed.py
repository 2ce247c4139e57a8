"""Registration: functions in tables, modules of a package, groups of entry points."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from functools import cache
from typing import TypeVar, cast

_FORMS = {
    "commands": "module:NAME",
    "file_forms": "module:NAME",
    "folders": "module:NAME",
    "methods": "module:NAME",
    "modules": "module",
    "names": "module:NAME",
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
