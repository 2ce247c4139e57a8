"""What installed packages offer to Mirlo: the entry points of a group."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any


def offered(group: str) -> list[Any]:
    """The entry points of a group, of all installed packages."""
    return list(_all(tuple(sys.path)).select(group=group))


@cache
def _all(path: tuple[str, ...]) -> Any:
    """Looked up once for an import path: it reads a file of every package, which takes milliseconds."""
    # Imported here because it costs a tenth of the start-up time of a command that does not need it.
    from importlib.metadata import entry_points

    return entry_points()
