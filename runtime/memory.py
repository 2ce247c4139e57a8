"""How much memory there is: asked before large allocations, which systems grant and then end the process for."""

from __future__ import annotations

import os

from mirlo.runtime.errors import OutOfMemoryError

LARGE = 1 << 30
"""Bytes of an allocation from which on it is compared with the memory that is available."""
_MEMINFO = "/proc/meminfo"
_CONTROL_GROUP_LIMIT = "/sys/fs/cgroup/memory.max"


def available_bytes() -> int | None:
    """Return the bytes that a process can still use without being ended, or None where the system does not say."""
    limits = [bytes_ for bytes_ in (_unused_bytes(), _control_group_bytes()) if bytes_ is not None]
    return min(limits, default=None)


def require_available(nbytes: int) -> None:
    """Raise an `OutOfMemoryError` unless so many bytes can be used."""
    available = available_bytes()
    if available is not None and nbytes > available:
        raise OutOfMemoryError(f"{nbytes} bytes are needed at once, and {available} are available")


def _unused_bytes() -> int | None:
    try:
        with open(_MEMINFO, encoding="ascii") as file:
            rows = dict(line.split(":", 1) for line in file)
        return sum(int(rows[key].split()[0]) << 10 for key in ("MemAvailable", "SwapFree"))
    except (OSError, ValueError, KeyError, IndexError):
        return None


def _control_group_bytes() -> int | None:
    """The limit of a container. What it uses is not subtracted: most of that may be files, which are given back."""
    if not os.path.exists(_CONTROL_GROUP_LIMIT):
        return None
    try:
        with open(_CONTROL_GROUP_LIMIT, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):  # "max"
        return None
