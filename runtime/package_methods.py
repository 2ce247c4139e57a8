"""Former methods of `Executable`, which functions of packages replace: the entry point group `mirlo.methods`."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

from mirlo.runtime.entry_points import EntryPoint, offered
from mirlo.runtime.known_packages import install_command

GROUP = "mirlo.methods"


def package_method(name: str) -> Any:
    """Return the function or property of this name, with a warning that names its place; None if there is none."""
    if name.startswith("_"):
        return None
    entry = _entry(name)
    if entry is not None:
        place = entry.value.replace(":", ".")
        warnings.warn(f"Executable.{name} is now {place}(executable, ...)", DeprecationWarning, stacklevel=3)
        return entry.load()
    command = install_command(GROUP, name)
    if command is not None:
        raise AttributeError(f"Executable.{name} is a function of a package that is not installed: {command}")
    return None


@cache
def _entry(name: str) -> EntryPoint | None:
    return next((entry for entry in offered(GROUP) if entry.name == name), None)
