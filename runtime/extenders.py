"""The modules that use `mirlo.extend`: no cache key covers those that belong to no installed package."""

from __future__ import annotations

import sys
from types import ModuleType

from mirlo.runtime.compiler_version import installed_modules

_EXTENDERS: dict[str, None] = {}


class _ExtensionModule(ModuleType):
    """A module of `mirlo.extend`, which records the modules that take names from it."""

    def __getattribute__(self, name: str) -> object:
        if not name.startswith("_"):
            record_extender(str(sys._getframe(1).f_globals.get("__name__", "?")))
        return super().__getattribute__(name)


def record_extenders(name: str) -> None:
    """Record the modules that take names from a module of `mirlo.extend`, which calls this at its end."""
    sys.modules[name].__class__ = _ExtensionModule


def record_extender(module: str) -> None:
    """Record that a module takes a name from `mirlo.extend`."""
    _EXTENDERS[module] = None


def foreign_extenders() -> list[str]:
    """Return the modules that extend the compiler in this process and belong to no installed package."""
    known = {"mirlo", "importlib", *installed_modules()}
    return [module for module in _EXTENDERS if module.partition(".")[0] not in known]
