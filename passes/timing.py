"""Compile time per pass."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.passes.instrumentation import Instrument
from mirlo.passes.pipeline_parser import Nested
from mirlo.passes.registry import Pass
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.instrumentation import PassFailed
    from mirlo.passes.pipeline_parser import Leaf, Step

_RULE = "===" + "-" * 73 + "==="


@dataclass
class PassTiming(Instrument):
    """Timer of each pass of a pipeline, and of named phases around it. `steps` are the pipeline's."""

    steps: Sequence[Step] = ()
    phases: dict[str, float] = field(default_factory=dict)
    _seconds: dict[int, float] = field(default_factory=dict)
    _runs: dict[int, int] = field(default_factory=dict)
    _verify: float = 0.0
    _since: float = 0.0
    _started: float = field(default_factory=time.perf_counter)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure a phase other than a pass, such as parsing."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start

    def before_pass(self, step: Leaf, op: ir.OpView) -> None:
        self._since = time.perf_counter()

    def before_verify(self, step: Leaf, op: ir.OpView) -> None:
        self._add(step)
        self._since = time.perf_counter()

    def after_pass(self, step: Leaf, op: ir.OpView) -> None:
        self._verify += time.perf_counter() - self._since

    def pass_failed(self, step: Leaf, op: ir.OpView, failure: PassFailed) -> None:
        self._add(step)

    def _add(self, step: Leaf) -> None:
        self._seconds[id(step)] = self._seconds.get(id(step), 0.0) + time.perf_counter() - self._since
        self._runs[id(step)] = self._runs.get(id(step), 0) + 1

    def report(self, by_time: bool = False) -> str:
        """Return the table as text, in the order of the pipeline, or its passes sorted by time."""
        total = time.perf_counter() - self._started
        rows = [(seconds, 0, name, "") for name, seconds in self.phases.items()]
        rows[1:1] = [*self._rows(self.steps, 0), (self._verify, 0, "Verify", "")]
        rows.append((total - sum(row[0] for row in rows if row[1] == 0), 0, "Rest", ""))
        rows.append((total, 0, "Total", ""))
        if by_time:
            inner = [row for row in rows[:-1] if row[3] or row[2] in self.phases]
            rows = [(row[0], 0, *row[2:]) for row in sorted(inner, key=lambda row: -row[0])] + rows[-1:]
        lines = [_RULE, "... Execution time report ...".center(len(_RULE)), _RULE]
        lines += [f"  Total Execution Time: {total:.4f} seconds", "", "  ----Wall Time----  --Runs--  ----Name----"]
        for seconds, depth, name, runs in rows:
            share = 100 * seconds / total if total else 0.0
            lines.append(f"  {seconds:9.4f} ({share:5.1f}%)  {runs:>8}  {'  ' * depth}{name}")
        return "\n".join(lines) + "\n"

    def _rows(self, steps: Sequence[Step], depth: int) -> list[tuple[float, int, str, str]]:
        rows: list[tuple[float, int, str, str]] = []
        for step in steps:
            if isinstance(step, Nested):
                nested = self._rows(step.steps, depth + 1)
                rows.append((sum(row[0] for row in nested if row[1] == depth + 1), depth, step.name, ""))
                rows += nested
            else:
                kind = "Python" if isinstance(step, Pass) else "upstream"
                label = f"{step.name} ({kind})"
                rows.append((self._seconds.get(id(step), 0.0), depth, label, str(self._runs.get(id(step), 0))))
        return rows
