"""The declared speed of a target, for placement by estimated cost: a roofline, and the costs of calls and transfers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from mirlo.runtime.callbacks import callback, check_callbacks, is_a, optional
from mirlo.runtime.errors import MirloError
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class RegionWork:
    """Work to estimate: its heaviest operator with tensor types as text, and totals."""

    operator: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    flops: int
    size: int
    """Bytes read and written."""


@dataclass(frozen=True)
class Cost:
    """An expected cost, and the part that dominates it."""

    microseconds: float
    why: str = ""


@dataclass(frozen=True)
class Figures:
    """Rates of one thread. Only the ratios between targets matter."""

    gflops: float
    """Billions of operations per second."""
    gbytes: float
    """Billions of bytes read or written per second."""
    call_us: float = 0.5
    """Microseconds per call of a region, or per kernel for the compiler of the rest of the model."""
    transfer_gbytes: float = 0.0
    """Billions of bytes per second between its memory and the model's; 0 if it uses tensors in place."""
    operators: Mapping[str, float] = field(default_factory=dict)
    """Rates of single operators, in billions of operations per second: `{"relax.conv": 80.0}`."""
    scales: bool = True
    """Whether speed is proportional to the number of threads."""
    expected: Callable[[RegionWork], Cost | None] | None = callback(
        "a Cost, or None", optional(is_a("mirlo.passes.figures:Cost"))
    )
    """A cost model for some work; it returns None for work that these rates estimate."""

    def __post_init__(self) -> None:
        check_callbacks(self, "Figures", MirloError)

    def cost(self, work: RegionWork, threads: int = 1) -> Cost:
        """Return the cost of work: by the model if it has one, else the longer of computing and memory traffic."""
        result = self.expected(work) if self.expected is not None else None
        if result is not None:
            return result
        computing, moving = self._parts(work.flops, work.size, work.operator, threads)
        return Cost(max(computing, moving), "operations" if computing > moving else "bytes")

    def microseconds(self, flops: int, size: int, operator: str = "", threads: int = 1) -> float:
        """Return the time for operations and bytes by the rates: the longer of both."""
        return max(self._parts(flops, size, operator, threads))

    def _parts(self, flops: int, size: int, operator: str, threads: int) -> tuple[float, float]:
        rate = self.operators.get(operator, self.gflops) * (threads if self.scales else 1)
        return flops / rate / 1e3, size / self.gbytes / 1e3


@dataclass(frozen=True)
class ComparedChoice:
    """Choices that a rule compared, with the numbers by which it compared them."""

    values: Mapping[str, int]
    time: float
    limit: str = ""
    """What limits the time."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """The time by what takes it, if that is known."""


@dataclass(frozen=True)
class KernelExpectation:
    """The expected time of a prim function with its choices, and the other choices that were compared."""

    time: float
    """In `unit`."""
    unit: str = ""
    parts: Mapping[str, float] = field(default_factory=dict)
    """The time by what takes it, if that is known."""
    compared: str = ""
    """What the candidates are: register tiles."""
    candidates: Sequence[ComparedChoice] = ()
    """The choices that were taken, and all others, the fastest first."""
