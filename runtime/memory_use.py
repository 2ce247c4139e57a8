"""The memory that a loaded model uses."""

from __future__ import annotations

from mirlo.runtime.records import dataclass


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
