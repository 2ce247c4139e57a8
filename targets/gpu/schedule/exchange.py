"""How threads that work on the same row learn what they have together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from mirlo.dialects.bindings import memref
from mirlo.targets.gpu.schedule.launch import add, barrier, multiply, shared

Combine = Callable[[Any, Any], Any]


class Exchange(Protocol):
    """A team of neighbouring threads."""

    def together(self, values: Sequence[Any], combine: Combine) -> list[Any]:
        """What all threads of a team have of each value, known to each of them; all threads of the block take part."""


class SharedExchange:
    """Through shared memory: every thread reads what the others wrote."""

    def __init__(self, team: Any, member: Any, teams: int, members: int, values: int, kind: Any):
        self.team = team
        self.member = member
        self.members = members
        self.teams = teams
        self.memory = shared(teams * members * values, kind)

    def together(self, values: Sequence[Any], combine: Combine) -> list[Any]:
        starts = [multiply(add(self.team, i * self.teams), self.members) for i in range(len(values))]
        barrier()
        for value, start in zip(values, starts, strict=True):
            memref.StoreOp(value, self.memory, [add(start, self.member)])
        barrier()
        found = []
        for start in starts:
            everything = [memref.LoadOp(self.memory, [add(start, other)]).result for other in range(self.members)]
            # In pairs, so that the operations do not wait for each other; always in the same order.
            while len(everything) > 1:
                rest = everything[len(everything) // 2 * 2 :]
                everything = [combine(a, b) for a, b in zip(everything[::2], everything[1::2], strict=False)] + rest
            found.append(everything[0])
        return found
