"""The verdict of comparing a kernel with its definition."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from mirlo.runtime.records import dataclass

EQUAL, DIFFERENT, OUTSIDE = "equal", "different", "outside"


@dataclass(frozen=True)
class WrongElements:
    """The elements of a result that differ from those of the definition."""

    output: int
    first: tuple[int, ...]
    count: int
    total: int

    def __str__(self) -> str:
        where = ", ".join(map(str, self.first))
        return f"result {self.output} differs in {self.count} of {self.total} elements, first at [{where}]"


COMPARED, NOT_NEEDED, SKIPPED = "compared", "not needed", "skipped"


@dataclass(frozen=True)
class RangeRound:
    """The round of large 64-bit floats, which shows exponentials that overflow."""

    status: str
    """`COMPARED`; `NOT_NEEDED`, without exponentials or comparisons; `SKIPPED`, where an operation has no meaning."""
    why: str = ""
    """The construct that has no meaning for 64-bit floats."""

    def as_json(self) -> dict[str, str]:
        return {"status": self.status, "why": self.why}


@dataclass(frozen=True)
class KernelVerdict:
    """Whether a kernel computes what its definition does."""

    function: str
    status: str
    """`EQUAL`, `DIFFERENT` or `OUTSIDE`."""
    why: str = ""
    """What differs, or which construct has no exact meaning here."""
    nodes: tuple[str, ...] = ()
    rounds: int = 0
    bits: float = 0.0
    """A fault that changes results of sums and products stays unseen with a probability of at most 2^-bits."""
    wrong: WrongElements | None = None
    sizes: tuple[dict[str, int], ...] = ()
    """The sizes of symbols that were compared."""
    unreached: tuple[str, ...] = ()
    """Cases of loops and branches that no size had."""
    extremes: float = 1.0
    """The share of the operands of each maximum that was the greatest one in some round."""
    seed: int = 0
    """The round in which results differ."""
    rule: str = ""
    """The schedule rule that made the kernel."""
    choices: dict[str, Any] = field(default_factory=dict)
    primitive: str = ""
    """The first primitive of the schedule's trace after which results differ."""
    ranges: RangeRound | None = None
    """The round of large numbers; None where the comparison ended before it."""

    def __str__(self) -> str:
        of_nodes = f" ({', '.join(self.nodes)})" if self.nodes else ""
        if self.status == EQUAL:
            without = f", {self.without}" if self.without else ""
            return f"kernel '@{self.function}'{of_nodes} is equal to its definition in {self.rounds} rounds{without}"
        if self.status == OUTSIDE:
            return f"kernel '@{self.function}'{of_nodes} is not compared with its definition: {self.why}"
        by = f", scheduled by '{self.rule}'" if self.rule else ""
        choices = ", ".join(f"{name}={value}" for name, value in self.choices.items())
        after = f"; it first differs after {self.primitive}" if self.primitive else ""
        return (
            f"kernel '@{self.function}'{of_nodes}{by}{f' with {choices}' if choices else ''} differs from its "
            f"definition: {self.why} (round {self.seed}){after}"
        )

    @property
    def without(self) -> str:
        """Return which round the kernel should have and did not run in, and why; empty if there is none."""
        if self.ranges is None or self.ranges.status != SKIPPED:
            return ""
        return f"without large numbers: {self.ranges.why}"

    @property
    def summary(self) -> str:
        """Return the verdict as a short text."""
        if self.status == EQUAL:
            without = f"; {self.without}" if self.without else ""
            rounds = f"{self.rounds} rounds"
            return f"equal in {rounds}; a fault is seen but for a probability of 2^-{self.bits:.0f}{without}"
        after = f"; it first differs after {self.primitive}" if self.primitive else ""
        return f"{self.status}: {self.why}{f' (round {self.seed}){after}' if self.status == DIFFERENT else ''}"

    def as_json(self) -> dict[str, object]:
        wrong = None if self.wrong is None else {
            "output": self.wrong.output, "first": list(self.wrong.first), "count": self.wrong.count,
            "total": self.wrong.total,
        }  # fmt: skip
        return {
            "kernel": self.function, "status": self.status, "why": self.why, "nodes": list(self.nodes),
            "sizes": list(self.sizes), "unreached": list(self.unreached), "extremes": round(self.extremes, 4),
            "rounds": self.rounds, "bits": round(self.bits, 1), "wrong": wrong, "seed": self.seed, "rule": self.rule,
            "choices": {name: str(value) for name, value in self.choices.items()}, "primitive": self.primitive,
            "ranges": None if self.ranges is None else self.ranges.as_json(),
        }  # fmt: skip
