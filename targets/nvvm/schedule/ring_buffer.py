"""Pipeline stages in shared memory, from producers to the warpgroups that consume them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mirlo.dialects.bindings import ir, scf
from mirlo.dialects.core.value import Value, index, select
from mirlo.runtime.records import dataclass
from mirlo.targets.nvvm.schedule.bulk import Barriers

GROUP = 128
"""Threads of a warpgroup."""
PRODUCT_ROWS = 64
"""Rows of its products."""
RESERVED_BYTES = 2048
"""Bytes of shared memory that are not stages."""


@dataclass(frozen=True)
class Ring:
    """A ring buffer of pipeline stages, filled and consumed in the same order.

    Each stage has two barriers: `full` completes when all bytes have arrived, `empty` when all warps have consumed
    them.
    """

    base: Value
    """Address of the first stage."""
    size: int
    """Bytes of a stage."""
    count: int
    full: Barriers
    empty: Barriers

    @staticmethod
    def of(base: Value, size: int, count: int, states: Value) -> Ring:
        """Return consecutive stages, whose barriers take 16 bytes each from `states` on."""
        full = Barriers(states)
        return Ring(base, size, count, full, Barriers(states + 8 * count))

    def make(self, copying: int, multiplying: int) -> None:
        """Initialize the barriers for this many producers and consumers."""
        for slot in range(self.count):
            self.full.make(slot, copying)
            self.empty.make(slot, multiplying)

    def at(self, slot: ir.Value) -> Value:
        """Return the address of a stage."""
        return self.base + Value(slot) * self.size

    def following(self, slot: ir.Value, parity: ir.Value) -> list[ir.Value]:
        """Return the next stage and its phase, which flips with each round."""
        following = Value(slot) + 1
        more = following.below(self.count)
        other = index(1) - parity
        return [
            select(more, following, index(0)),
            select(more, parity, other),
        ]

    def before(self, slot: ir.Value, number: int) -> Value:
        """Return the stage this many before one."""
        far = Value(slot) + (self.count - number)
        wrapped = far - self.count
        return select(far.below(self.count), far, wrapped)


@contextmanager
def only(condition: Value) -> Iterator[None]:
    """Emit operations for the threads for which a condition holds."""
    branch = scf.IfOp(condition)
    with ir.InsertionPoint(branch.then_block):
        yield
        scf.YieldOp([])
