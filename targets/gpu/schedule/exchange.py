"""Exchange of values between the threads that work on one row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core.value import Value
from mirlo.passes.schedule.blocks.combine import in_pairs
from mirlo.passes.schedule.loops import when
from mirlo.targets.gpu.schedule.launch import barrier, shared, split

Combine = Callable[[ir.Value, ir.Value], ir.Value]


class Exchange(Protocol):
    """A team of consecutive threads."""

    def together(self, values: Sequence[ir.Value], combine: Combine) -> list[ir.Value]:
        """Reduce each value over the team and return the result to every thread; all threads of the block take part."""


READS_PER_THREAD = 16
"""Values that a thread reads at a time; larger teams combine in groups first."""
GROUP = 8


def exchanged_elements(teams: int, members: int, values: int) -> int:
    """Return the elements of shared memory in which the members of teams exchange values, in groups of large teams."""
    own = teams * members * values
    return own + exchanged_elements(teams, members // GROUP, values) if members > READS_PER_THREAD else own


class SharedExchange:
    """Exchange through shared memory: every thread reads what the others wrote."""

    def __init__(
        self,
        team: Value,
        member: Value,
        teams: int,
        members: int,
        values: int,
        kind: ir.Type,
        writes: Value | None = None,
    ):
        self.teams = teams
        self.members = members
        self.team = team
        self.member = member
        self.memory = shared(teams * members * values, kind)
        self.writes = writes
        """Whether this thread writes its value; one of several threads with the same value."""
        self.groups: SharedExchange | None = None
        if members > READS_PER_THREAD:
            group, self.member = split(member, [members // GROUP, GROUP])
            self.team = team * (members // GROUP) + group
            self.teams, self.members = teams * (members // GROUP), GROUP
            self.groups = SharedExchange(team, group, teams, members // GROUP, values, kind, self.member.equals(0))

    def together(self, values: Sequence[ir.Value], combine: Combine) -> list[ir.Value]:
        """See `Exchange`."""
        starts = [(self.team + i * self.teams) * self.members for i in range(len(values))]
        barrier()
        for value, start in zip(values, starts, strict=True):
            when(self.writes, partial(memref.StoreOp, value, self.memory, [start + self.member]))
        barrier()
        combined = []
        for start in starts:
            everything = [memref.LoadOp(self.memory, [start + other]).result for other in range(self.members)]
            combined.append(in_pairs(combine, everything))
        return combined if self.groups is None else self.groups.together(combined, combine)
