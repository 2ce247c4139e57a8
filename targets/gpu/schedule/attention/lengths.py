"""Attention with a dynamic number of queries: kernels for one query, and kernels for more.

Decoders process a prompt of many tokens first, then one token at a time. Tiles for one case are bad for the other,
so both exist; the host launches those that apply, and the others with an empty grid.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Protocol

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.passes.schedule.blocks.attention import AttentionBlocks
from mirlo.passes.schedule.buffers import ScheduleFacts, TensorBuffers
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.attention.work import Work


class EmittedKernel(Protocol):
    """A kernel that is emitted at the insertion point."""

    def emit(self) -> None:
        """Emit the launches."""


class AttentionTile(Protocol):
    """The tile of an attention that a thread block computes."""

    def describe(self) -> ScheduleFacts:
        """Return the description that `mirlo explain` prints."""


@dataclass(frozen=True)
class AttentionPlan:
    """A plan of an attention."""

    name: str
    found: AttentionBlocks
    tile: AttentionTile
    parts: Dim
    """Thread blocks that split the keys of a row."""
    facts: ScheduleFacts = field(default_factory=dict, kw_only=True)
    """What `mirlo explain` prints beside the tile."""

    def kernel(self, work: Work) -> EmittedKernel:
        """Return the kernel of an attention."""
        raise NotImplementedError

    def emit(self, memory: TensorBuffers, times: Dim = 1) -> None:
        """Emit the launches, which the host executes `times` times: once or not at all."""
        self.kernel(Work(self.found, memory, times)).emit()

    def describe(self) -> ScheduleFacts:
        """Return the description that `mirlo explain` prints."""
        return {**self.tile.describe(), "parts": self.parts, **self.facts}


@dataclass(frozen=True)
class QueryCountPlans:
    """Two plans of the same attention."""

    one: AttentionPlan
    """For one query."""
    more: AttentionPlan
    length: Dim

    @property
    def name(self) -> str:
        return self.more.name if self.one.name == self.more.name else f"{self.more.name}, {self.one.name}"

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the launches of both at the insertion point."""
        self.one.emit(memory, D.minimum(self.length, D.maximum(0, 2 - self.length)))
        self.more.emit(memory, D.minimum(1, D.maximum(0, self.length - 1)))

    def describe(self) -> ScheduleFacts:
        one = {f"{name}_of_one": value for name, value in self.one.describe().items()}
        return {**self.more.describe(), **one}


def with_one_query(attention: AttentionBlocks) -> tuple[AttentionBlocks, Dim] | None:
    """Return the attention for one query and the number of queries, if that is dynamic."""
    loops = [loop for loop in attention.rows if not isinstance(attention.extents[loop], int)]
    if len(loops) != 1:
        return None
    length = attention.extents[loops[0]]
    extents = [1 if loop == loops[0] else extent for loop, extent in enumerate(attention.extents)]
    return replace(attention, extents=tuple(extents)), length
