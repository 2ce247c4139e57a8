"""Available memory, checked before large allocations: systems grant these and end the process later."""

from __future__ import annotations

import os

from mirlo.runtime.errors import OutOfMemoryError
from mirlo.runtime.processes import unused_addresses
from mirlo.runtime.records import dataclass
from mirlo.runtime.system import own_memory

LARGE = 1 << 30
"""Size in bytes from which an allocation is compared with the available memory."""
_MEMINFO = "/proc/meminfo"
_CONTROL_GROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Of the second and the first version of control groups."""


def available_bytes() -> int | None:
    """Return the bytes that a process can use without being ended; None if the system does not report them."""
    limits = [_unused_bytes(), *map(_control_group_bytes, _CONTROL_GROUP_LIMITS), unused_addresses()]
    return min((limit for limit in limits if limit is not None), default=None)


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


def _control_group_bytes(path: str) -> int | None:
    """Return the bytes that the container's limit leaves besides this process.

    Its usage is not subtracted: most of it may be reclaimable page cache.
    """
    if not os.path.exists(path):
        return None
    try:
        with open(path, encoding="ascii") as file:
            return max(0, int(file.read()) - own_memory())
    except (OSError, ValueError):  # "max"
        return None


@dataclass(frozen=True)
class MemoryUse:
    """The memory of an executable, in bytes."""

    weights_bytes: int
    arena_bytes: int
    """Of each call in progress, if it is the same for all calls."""
    device_arena_bytes: int = 0
    """Of the model on its device, shared by all calls."""
    is_dynamic: bool = False
    """Whether the size of the arena depends on the run-time sizes."""

    def __str__(self) -> str:
        weights = f"weights {self.weights_bytes / 2**20:.1f} MiB"
        if self.device_arena_bytes:
            return f"{weights}, arena {self.device_arena_bytes / 2**20:.1f} MiB on the device"
        if self.is_dynamic:
            return f"{weights}, arena by the sizes of a call"
        return f"{weights}, arena {self.arena_bytes / 2**20:.1f} MiB per call"
