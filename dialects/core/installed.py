"""What is found by where it stands: entry points of installed packages, modules of a package."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints


@cache
def import_modules(package: str) -> None:
    """Import all modules of a package, once: each registers what it has."""
    import pkgutil  # here: what starts quickly asks for entry points only

    found = importlib.import_module(package)
    for module in pkgutil.iter_modules(found.__path__):
        importlib.import_module(f"{package}.{module.name}")


def offered(group: str) -> list[EntryPoint]:
    """Return the entry points of a group, of all installed packages."""
    return list(_all(tuple(sys.path)).select(group=group))


@cache
def _all(path: tuple[str, ...]) -> EntryPoints:
    """Return all entry points, cached per import path: reading a file of every package takes milliseconds."""
    # Imported lazily: a tenth of the start-up time of a command that does not need it.
    from importlib.metadata import entry_points

    found: EntryPoints = entry_points()  # type: ignore[assignment]
    return found
