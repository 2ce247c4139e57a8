"""Registration: functions in tables, modules of a package, groups of entry points."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from functools import cache
from typing import TypeVar, cast

_FORMS = {
    "commands": "module:NAME",
    "compile_options": "module:CLASS",
    "file_forms": "module:NAME",
    "folders": "module:NAME",
    "methods": "module:NAME",
    "model_files": "module:NAME",
    "modules": "module",
    "names": "module:NAME",
    "targets": "module:NAME",
    "dialects": "module:NAME",
    "passes": "module",
    "rules": "module",
    "loaders": "module:NAME",
    "frontends": "module:NAME",
    "library_forms": "module:NAME",
    "strategies": "module:CLASS",
}
GROUPS = {f"mirlo.{name}": form for name, form in _FORMS.items()}
"""The entry point groups that Mirlo reads, and what an entry names: an object, or a module that registers."""

F = TypeVar("F")
Entry = TypeVar("Entry")


def register_in(table: dict[str, Entry], names: Iterable[str]) -> Callable[[F], F]:
    """Return a decorator that enters a function in a table under these names; the caller declares which it takes.

    What a user entered stays, whichever of Mirlo's modules are imported later.
    """

    def register(function: F) -> F:
        for name in names:
            if not is_of_mirlo(function) or is_of_mirlo(table.get(name, function)):
                table[name] = cast("Entry", function)
        return function

    return register


def is_of_mirlo(function: object) -> bool:
    """Return whether a function is defined in Mirlo or in a package of its own."""
    return str(getattr(function, "__module__", None)).startswith(("mirlo.", "mirlo_"))


@cache
def import_modules(package: str) -> None:
    """Import all modules of a package, once: each registers what it has."""
    import pkgutil  # here: what starts quickly asks for entry points only

    parent = importlib.import_module(package)
    for module in pkgutil.iter_modules(parent.__path__):
        importlib.import_module(f"{package}.{module.name}")


class ModuleIndex:
    """The modules of a package by the keys of what they register: a module is imported when a key is first asked for.

    The package has the keys as text in `INDEX`: a line for each module, `name: key key ...`, continued by indented
    lines. Modules of one key are imported in the order of their names.
    """

    def __init__(self, package: str) -> None:
        self.package = package
        self._modules: dict[str, list[str]] = {}
        self._ranks: dict[str, int] = {}
        text: str = importlib.import_module(package).INDEX
        for line in text.replace("\n    ", " ").strip().splitlines():
            name, _, keys = line.partition(": ")
            self._ranks[f"{package}.{name}"] = len(self._ranks)
            for key in keys.split():
                self._modules.setdefault(key, []).append(name)

    def load(self, key: str) -> None:
        """Import the modules of a key."""
        for name in sorted(self._modules.pop(key, ())):
            importlib.import_module(f"{self.package}.{name}")

    def load_all(self) -> None:
        """Import all modules of the package."""
        import_modules(self.package)
        self._modules.clear()

    def waiting(self) -> set[str]:
        """Return the keys that were not asked for yet."""
        return set(self._modules)

    def rank(self, module: str) -> int | None:
        """Return the place of a module in the index, for an order that does not depend on imports; None outside."""
        return self._ranks.get(module)
