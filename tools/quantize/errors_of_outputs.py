"""Sums of the differences between results of two models, call by call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import numpy as np

from mirlo.runtime.records import dataclass
from mirlo.tools.quantize.report import OutputError


@dataclass
class Difference:
    """The difference of one result, over the calls so far."""

    squares: float = 0.0
    expected_squares: float = 0.0
    largest: float = 0.0
    rows: int = 0
    same: int = 0

    def add(self, actual: np.ndarray, expected: np.ndarray) -> None:
        left, right = actual.astype(np.float64), expected.astype(np.float64)
        gap = left - right
        self.squares += float(np.square(gap).sum())
        self.expected_squares += float(np.square(right).sum())
        self.largest = max(self.largest, float(np.abs(gap).max(initial=0)))
        if expected.ndim == 2 and expected.shape[1] > 1:
            self.rows += len(expected)
            self.same += int((actual.argmax(1) == expected.argmax(1)).sum())

    @property
    def relative(self) -> float:
        if self.expected_squares:
            return float(np.sqrt(self.squares / self.expected_squares))
        return float(np.sqrt(self.squares))


@dataclass
class Differences:
    """The differences of the outputs."""

    by_output: dict[str, Difference] = field(default_factory=dict)

    def add(self, actual: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
        for name, array in expected.items():
            if array.dtype.kind == "f":
                self.by_output.setdefault(name, Difference()).add(actual[name], array)

    @property
    def relative(self) -> float:
        """Return the largest relative RMS error of an output."""
        return max((each.relative for each in self.by_output.values()), default=0.0)

    def outputs(self) -> tuple[OutputError, ...]:
        return tuple(
            OutputError(name, each.relative, each.largest, each.same / each.rows if each.rows else None)
            for name, each in self.by_output.items()
        )
