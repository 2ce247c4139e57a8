"""What a target says of its speed, for placement by estimated cost: a roofline, and what calls and transfers cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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

    def microseconds(self, flops: int, size: int, operator: str = "", threads: int = 1) -> float:
        """Time for operations and bytes: the longer of both."""
        rate = self.operators.get(operator, self.gflops) * (threads if self.scales else 1)
        return max(flops / rate, size / self.gbytes) / 1e3
