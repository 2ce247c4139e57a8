"""Modules `mirlo.NAME` of packages, by the entry point group `mirlo.modules`: `name = "package.module"`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from mirlo.runtime.entry_points import offered
from mirlo.runtime.known_packages import PACKAGES, install_command

GROUP = "mirlo.modules"


class PackageModules:
    """Finds `mirlo.NAME.inner` of a package: another name of `package.module.inner`, the same module.

    Python asks it last, for what no folder of Mirlo has; once a name was found also first, as Python's own finders
    would load the modules below that name a second time.
    """

    def __init__(self) -> None:
        self._found: dict[str, str] = {}

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Return the place of a module of a package, or None for other modules."""
        first, _, rest = name.partition(".")
        if first != "mirlo" or not rest:
            return None
        module, _, inner = rest.partition(".")
        if module not in self._found:
            if inner or not self._find(module):
                return None
            sys.meta_path.insert(0, self)
        alias: Any = _Alias(".".join(filter(None, (self._found[module], inner))))
        return ModuleSpec(name, alias)

    def _find(self, module: str) -> bool:
        """Return whether a package offers a module; raise an error if one does that is not installed."""
        for entry in offered(GROUP):
            if entry.name == module:
                self._found[module] = entry.value
                return True
        if module in PACKAGES["modules"]:
            package = PACKAGES["modules"][module]
            what = f"mirlo.{module} is in a package that is not installed: {install_command(GROUP, module)}"
            raise ModuleNotFoundError(what, name=package.replace("-", "_"))
        return False


class _Alias:
    """Loads a module under another name: both are the same object."""

    def __init__(self, module: str) -> None:
        self._module = module

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(self._module)


def package_modules() -> list[str]:
    """Return the names of modules that installed packages offer."""
    return sorted(entry.name for entry in offered(GROUP))
