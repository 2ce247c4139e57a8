"""The modules that use `mirlo.extend`: no cache key covers those that belong to no installed package."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from mirlo.runtime.entry_points import declared_groups, offered
from mirlo.runtime.sources import model_version

_GROUPS = (
    "mirlo.targets", "mirlo.dialects", "mirlo.passes", "mirlo.rules", "mirlo.loaders", "mirlo.frontends",
    "mirlo.file_forms", "mirlo.compile_options", "mirlo.strategies",
)  # fmt: skip
"""The entry point groups whose modules take part in a compilation."""


@cache
def compiler_version() -> str:
    """Return a digest of the sources of Mirlo and of its plug-ins, and of the versions of their dependencies."""
    modules = extension_modules()
    paths = [path for module in modules for path in _module_paths(module)]
    return "\n".join((sys.version, *modules, model_version(paths)))


def extension_modules() -> list[str]:
    """Return the top-level modules of the installed packages that extend the compiler."""
    return _top_level_modules(_GROUPS)


def installed_modules() -> list[str]:
    """Return the top-level modules of all installed packages with entry points of Mirlo.

    Those that offer commands, modules or folders alone are not part of a compilation, nor of its key.
    """
    return _top_level_modules(declared_groups())


def _top_level_modules(groups: Iterable[str]) -> list[str]:
    modules = {entry.value.partition(":")[0].partition(".")[0] for group in groups for entry in offered(group)}
    return sorted(modules - {"mirlo"})


def _module_paths(module: str) -> list[Path]:
    """Return the folders, or the file, of a module without importing it."""
    spec = find_spec(module)
    if spec is None:
        return []
    return [Path(place) for place in spec.submodule_search_locations or [spec.origin or ""]]


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
