"""Former names of public modules: their new names, or the package that has them now, for one version.

    __getattr__ = former_names(__name__, {"words_of": "mirlo.extend.schedules:schedule_of"})

A name that a package has now is an entry point in the group `mirlo.names`: `"extend.frontend.tosa_converter" =
"package.module:NAME"` keeps `mirlo.extend.frontend.tosa_converter`.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from mirlo.runtime.entry_points import offered
from mirlo.runtime.extenders import record_extender
from mirlo.runtime.known_packages import PACKAGES, install_command

GROUP = "mirlo.names"


def former_names(module: str, addresses: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module for names that it had: a warning states the new name of each.

    It raises `AttributeError` for other names, and `ModuleNotFoundError`, with the command that installs it, for a name
    of a package that is not installed.
    """
    moved = addresses or {}

    def former_name(name: str) -> Any:
        address = moved.get(name) or _address_in_package(module, name)
        place, _, attribute = address.partition(":")
        depth = _depth()
        warnings.warn(f"{module}.{name} is now {place}.{attribute}", DeprecationWarning, stacklevel=depth)
        record_extender(str(sys._getframe(depth - 1).f_globals.get("__name__", "?")))
        return getattr(importlib.import_module(place), attribute)

    return former_name


def _address_in_package(module: str, name: str) -> str:
    full = f"{module.removeprefix('mirlo.')}.{name}"
    for entry in offered(GROUP):
        if entry.name == full:
            return entry.value
    package = PACKAGES["names"].get(full)
    if package is None:
        raise AttributeError(f"module '{module}' has no attribute '{name}'")
    what = f"{module}.{name} is in a package that is not installed: {install_command(GROUP, full)}"
    raise ModuleNotFoundError(what, name=package.replace("-", "_"))


def _depth() -> int:
    """Return how many frames the module that takes a name is above `former_name`, which is the first."""
    depth, frame = 2, sys._getframe(2)
    while frame.f_globals.get("__name__") == "mirlo.runtime.extenders" and frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    return depth
