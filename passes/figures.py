"""What a target says of its speed, for placement by estimated cost: a roofline, and what calls and transfers cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Work:
    """What is computed together: its heaviest operator, with the types of tensors as text, and all that it does."""

    operator: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    flops: int
    size: int
    """Bytes that are read and written."""


@dataclass(frozen=True)
class Cost:
    """What it is expected to take, and what decides that."""

    microseconds: float
    why: str = ""


@dataclass(frozen=True)
class Figures:
    """Figures of one thread. Only how those of several targets compare matters."""

    gflops: float
    """Billions of operations in a second."""
    gbytes: float
    """Billions of bytes that are read or written in a second."""
    call_us: float = 0.5
    """Microseconds that a call of a region costs, or of the compiler of the rest, of a kernel."""
    transfer_gbytes: float = 0.0
    """Billions of bytes in a second between its memory and the model's; 0 where tensors are used where they lie."""
    operators: Mapping[str, float] = field(default_factory=dict)
    """Other billions of operations in a second, by operator: `{"relax.conv": 80.0}`."""
    scales: bool = True
    """Whether several threads do as many times more."""
    expected: Callable[[Work], Cost | None] | None = None
    """A model that knows more of some work than these rates; None for what it leaves to them."""

    def cost(self, work: Work, threads: int = 1) -> Cost:
        """Time for work: by the model where it knows, else the longer of operations and bytes."""
        found = self.expected(work) if self.expected is not None else None
        if found is not None:
            return found
        computing, moving = self._parts(work.flops, work.size, work.operator, threads)
        return Cost(max(computing, moving), "operations" if computing > moving else "bytes")

    def microseconds(self, flops: int, size: int, operator: str = "", threads: int = 1) -> float:
        """Time for operations and bytes by the rates: the longer of both."""
        return max(self._parts(flops, size, operator, threads))

    def _parts(self, flops: int, size: int, operator: str, threads: int) -> tuple[float, float]:
        rate = self.operators.get(operator, self.gflops) * (threads if self.scales else 1)
        return flops / rate / 1e3, size / self.gbytes / 1e3
