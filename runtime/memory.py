"""Available memory, checked before large allocations: systems grant these and end the process later."""

from __future__ import annotations

import os

from mirlo.runtime.errors import OutOfMemoryError

LARGE = 1 << 30
"""Size in bytes from which an allocation is compared with the available memory."""
_MEMINFO = "/proc/meminfo"
_CONTROL_GROUP_LIMIT = "/sys/fs/cgroup/memory.max"


def available_bytes() -> int | None:
    """Return the bytes that a process can use without being ended; None if the system does not report them."""
    limits = [bytes_ for bytes_ in (_unused_bytes(), _control_group_bytes()) if bytes_ is not None]
    return min(limits, default=None)


def require_available(nbytes: int) -> None:
    """Raise an `OutOfMemoryError` unless this many bytes are available."""
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
    """Return the limit of the container. Its usage is not subtracted: most of it may be reclaimable page cache."""
    if not os.path.exists(_CONTROL_GROUP_LIMIT):
        return None
    try:
        with open(_CONTROL_GROUP_LIMIT, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):  # "max"
        return None
