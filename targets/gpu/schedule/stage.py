"""A stage of a prim function: the blocks that one plan computes."""

from __future__ import annotations

from typing import Protocol

from mirlo.passes.schedule.blocks.evaluate import TensorBuffers


class PlannedBlocks(Protocol):
    """Blocks that a plan computes."""

    @property
    def name(self) -> str:
        """Return the plan's name."""

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the launches at the insertion point."""
