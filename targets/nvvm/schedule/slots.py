"""Slots in shared memory that tiles go through, from those who copy them to the warpgroups that multiply them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import ir, scf
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.loops import index
from mirlo.targets.gpu.schedule.launch import add, less, multiply
from mirlo.targets.nvvm.schedule.bulk import Barriers

GROUP = 128
"""Threads of a warpgroup."""
LINES = 64
"""Rows of its products."""
BESIDE = 2048
"""Bytes of shared memory that are no slots."""


@dataclass(frozen=True)
class Ring:
    """Slots that are filled and multiplied in turns, in the same order by all.

    Each has two barriers: `full` opens when all bytes have arrived, `empty` when all warps have multiplied them.
    """

    base: Any
    """Where the first slot begins."""
    size: int
    """Bytes of a slot."""
    count: int
    full: Barriers
    empty: Barriers

    @staticmethod
    def of(base: Any, size: int, count: int, states: Any) -> Ring:
        """Slots behind each other, whose barriers are 16 bytes for each slot from `states` on."""
        full = Barriers(states)
        return Ring(base, size, count, full, Barriers(add(states, 8 * count)))

    def make(self, copying: int, multiplying: int) -> None:
        """Make the barriers, for so many who say that a slot is full and empty."""
        for slot in range(self.count):
            self.full.make(slot, copying)
            self.empty.make(slot, multiplying)

    def at(self, slot: Any) -> Any:
        """Where a slot begins."""
        return add(self.base, multiply(slot, self.size))

    def following(self, slot: Any, turn: Any) -> list[Any]:
        """The slot after one, and its turn: each time round the turn changes between 0 and 1."""
        following = add(slot, 1)
        more = less(following, self.count)
        other = create("arith.subi", turn.type, index(1), turn)
        return [
            create("arith.select", slot.type, more, following, index(0)),
            create("arith.select", turn.type, more, turn, other),
        ]

    def before(self, slot: Any, number: int) -> Any:
        """The slot so many before one."""
        far = add(slot, self.count - number)
        wrapped = create("arith.subi", slot.type, far, index(self.count))
        return create("arith.select", slot.type, less(far, self.count), far, wrapped)


@contextmanager
def only(condition: Any) -> Iterator[None]:
    """Operations for the threads for which a condition holds."""
    branch = scf.IfOp(condition)
    with ir.InsertionPoint(branch.then_block):
        yield
        scf.YieldOp([])
