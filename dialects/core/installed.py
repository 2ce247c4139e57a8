"""Entry points of installed packages."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any


def offered(group: str) -> list[Any]:
    """Return the entry points of a group, of all installed packages."""
    return list(_all(tuple(sys.path)).select(group=group))


@cache
def _all(path: tuple[str, ...]) -> Any:
    """Return all entry points, cached per import path: reading a file of every package takes milliseconds."""
    # Imported lazily: a tenth of the start-up time of a command that does not need it.
    from importlib.metadata import entry_points

    return entry_points()
