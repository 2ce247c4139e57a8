"""Progress of a compilation on standard error, how long each step took, and what is printed of its result."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from mirlo.runtime.names import write_over
from mirlo.runtime.records import dataclass
from mirlo.tools.cli.arguments import Arguments

if TYPE_CHECKING:
    import numpy as np

    from mirlo.runtime.artifact import TensorSpec
    from mirlo.runtime.profile import Profile


COMPILED = "compiled"
SHOW_AFTER = 0.5
"""Seconds: a compilation that ends sooner leaves the terminal alone."""


@dataclass
class Progress:
    """Called with the name of each step before it starts.

    On a terminal one line is written over; elsewhere `verbose` gives a line for each step.
    """

    what: str
    verbose: bool = False
    is_quiet: bool = False
    """Whether nothing is shown, also on a terminal."""
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    seconds: dict[str, float] = field(default_factory=dict)
    """Time of each step, by name; steps of the same name together."""

    def __post_init__(self) -> None:
        self._started = self._since = time.perf_counter()
        self._step = ""
        self._shown = 0

    def __call__(self, step: str) -> None:
        self._end_step()
        self._step = step
        if self.is_quiet:
            return
        if self.stream.isatty():
            self._show()
        elif self.verbose:
            self.stream.write(f"mirlo: {self.what}: {step}\n")
            self.stream.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._end_step()
        if self._shown:
            write_over(self.stream, " " * self._shown)
            write_over(self.stream, "")
            self.stream.flush()

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    @property
    def how(self) -> str:
        """Return how the model was obtained: compiled, or taken from the cache."""
        return COMPILED if "import" in self.seconds else "taken from the cache"

    def summary(self, longest: int = 4) -> str:
        """Format `12.3 s (emit 8.0, schedule 2.1, ...)`: the total, and the longest steps."""
        steps = sorted(self.seconds.items(), key=lambda item: -item[1])
        listed = [f"{name} {seconds:.1f}" for name, seconds in steps[:longest] if seconds >= 0.05]
        return f"{self.total:.1f} s" + (f" ({', '.join(listed)})" if listed else "")

    def table(self) -> str:
        """Format the steps, one per line, in order."""
        width = max(map(len, self.seconds), default=0)
        rows = [(name, seconds, seconds / (self.total or 1.0)) for name, seconds in self.seconds.items()]
        lines = [f"  {name.ljust(width)}  {seconds:8.3f} s  {share:6.1%}" for name, seconds, share in rows]
        return "\n".join([*lines, f"  {'total'.ljust(width)}  {self.total:8.3f} s"])

    def _end_step(self) -> None:
        now = time.perf_counter()
        if self._step:
            self.seconds[self._step] = self.seconds.get(self._step, 0.0) + now - self._since
        self._since = now

    def _show(self) -> None:
        passed = self._since - self._started
        if passed < SHOW_AFTER and not self.verbose:
            return
        text = f"{self.what}: {self._step} ({passed:.0f} s)"
        write_over(self.stream, text.ljust(self._shown))
        self.stream.flush()
        self._shown = len(text)


def file_json(files: Iterable[Path]) -> list[dict[str, object]]:
    """Return the files that a command wrote, with their sizes."""
    return [{"path": str(path), "bytes": path.stat().st_size} for path in files]


def linked_result(arguments: Arguments, files: Iterable[Path]) -> dict[str, object]:
    """Return the result of `mirlo link`."""
    return {"model": arguments.model, "files": file_json(files)}


def compiled_result(arguments: Arguments, progress: Progress | None, files: Iterable[Path]) -> dict[str, object]:
    """Return the files that a compilation wrote and its time, for programs."""
    return {
        "model": arguments.model,
        "target": arguments.target or "llvm",
        "emit": arguments.emit,
        "files": file_json(files),
        "from_cache": progress is not None and progress.how != COMPILED,
        "seconds": {} if progress is None else {**progress.seconds, "total": progress.total},
    }


def tensor_json(spec: TensorSpec) -> dict[str, object]:
    """Return the name, element type and dims of an input or output for programs; dynamic dims are texts."""
    shape = [dim if isinstance(dim, int) else str(dim) for dim in spec.shape]
    return {"name": spec.name, "dtype": spec.dtype, "shape": shape}


def array_json(name: str, array: np.ndarray) -> dict[str, object]:
    """Return the description of an array, with a summary of its finite values, for programs."""
    import numpy as np

    from mirlo.runtime.dtypes import element_type_of

    kind = element_type_of(array.dtype)
    numbers = array.astype(np.float64) if array.dtype.kind not in "OUS" else np.empty(0)
    finite = numbers[np.isfinite(numbers)]
    values = {"mean": finite.mean(), "min": finite.min(), "max": finite.max()} if finite.size else {}
    return {
        "name": name,
        "dtype": None if kind is None else kind.name,
        "shape": list(array.shape),
        "not_finite": int(numbers.size - finite.size),
        **{key: float(value) for key, value in values.items()},
    }


def latency_json(seconds: Sequence[float]) -> dict[str, object]:
    """Return the times of calls, for programs."""
    return {"median": statistics.median(seconds), "min": min(seconds), "max": max(seconds), "runs": len(seconds)}


def profile_json(profile: Profile) -> list[dict[str, object]]:
    """Return the time of each kernel, in the order of their calls, for programs."""
    return [{"name": row.symbol, "kind": row.kind, "microseconds": row.microseconds} for row in profile]
