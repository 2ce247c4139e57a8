"""Metrics of a server, in the text format of Prometheus."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = tuple[str, ...]


class Metric:
    """A named metric with a value for each combination of labels."""

    def __init__(self, kind: str, name: str, purpose: str, labels: Sequence[str]) -> None:
        self.kind, self.name, self.purpose, self.labels = kind, name, purpose, tuple(labels)
        self._lock = threading.Lock()

    def head(self) -> list[str]:
        """Return the lines before the values."""
        return [f"# HELP {self.name} {self.purpose}", f"# TYPE {self.name} {self.kind}"]

    def lines(self) -> Iterable[str]:
        """Yield the lines of the values."""
        raise NotImplementedError


class Counter(Metric):
    """A number that only increases."""

    def __init__(self, name: str, purpose: str, labels: Sequence[str] = ()) -> None:
        super().__init__("counter", name, purpose, labels)
        self._values: dict[Labels, float] = {}

    def add(self, value: float, *labels: str) -> None:
        """Increase the number for some labels."""
        with self._lock:
            self._values[labels] = self._values.get(labels, 0.0) + value

    def lines(self) -> Iterable[str]:
        """Yield the lines of the values."""
        with self._lock:
            values = dict(self._values)
        for labels, value in values.items():
            yield f"{self.name}{_labels(self.labels, labels)} {value:.17g}"


class Gauge(Metric):
    """A number that is read on demand."""

    def __init__(
        self,
        name: str,
        purpose: str,
        labels: Sequence[str],
        read: Callable[[], Mapping[Labels, float]],
        kind: str = "gauge",
    ) -> None:
        """Store how to read the number; `kind` is "counter" for one that only increases."""
        super().__init__(kind, name, purpose, labels)
        self._read = read

    def lines(self) -> Iterable[str]:
        """Yield the lines of the values."""
        for labels, value in self._read().items():
            yield f"{self.name}{_labels(self.labels, labels)} {value:.17g}"


class Histogram(Metric):
    """Counts of values up to each bound."""

    def __init__(self, name: str, purpose: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        super().__init__("histogram", name, purpose, labels)
        self._bounds = tuple(bounds)
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def observe(self, value: float, *labels: str) -> None:
        """Count a value."""
        with self._lock:
            counts = self._counts.setdefault(labels, [0] * (len(self._bounds) + 1))
            counts[bisect_left(self._bounds, value)] += 1
            self._sums[labels] = self._sums.get(labels, 0.0) + value

    def lines(self) -> Iterable[str]:
        """Yield the lines of the values."""
        with self._lock:
            rows = [(labels, list(counts), self._sums[labels]) for labels, counts in self._counts.items()]
        for labels, counts, total in rows:
            below = 0
            for bound, count in zip((*map(_bound, self._bounds), "+Inf"), counts, strict=True):
                below += count
                yield f"{self.name}_bucket{_labels((*self.labels, 'le'), (*labels, bound))} {below}"
            yield f"{self.name}_sum{_labels(self.labels, labels)} {total:.17g}"
            yield f"{self.name}_count{_labels(self.labels, labels)} {below}"


def _bound(value: float) -> str:
    return f"{value:g}" if value != int(value) else f"{value:.1f}"


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class ServerMetrics:
    """The metrics of a server."""

    def __init__(self) -> None:
        self.requests = Counter("mirlo_requests_total", "Requests that were answered.", ("endpoint", "model", "status"))
        self.seconds = Histogram(
            "mirlo_request_seconds", "Time from the request to the end of its answer.", ("endpoint", "model"), SECONDS
        )
        self.first = Histogram(
            "mirlo_first_token_seconds", "Time from the request to the first token.", ("model",), SECONDS
        )
        self.prompt_tokens = Counter("mirlo_prompt_tokens_total", "Tokens of prompts.", ("model",))
        self.reused_tokens = Counter(
            "mirlo_reused_tokens_total", "Tokens of prompts that were not computed again.", ("model",)
        )
        self.tokens = Counter("mirlo_generated_tokens_total", "Tokens of answers.", ("model",))
        self.refused = Counter("mirlo_refused_requests_total", "Requests beyond the queue: status 429.", ("model",))
        self.cancelled = Counter(
            "mirlo_cancelled_requests_total", "Requests whose client went before the answer.", ("model",)
        )
        self.failures = Counter("mirlo_engine_failures_total", "Steps of an engine that raised an error.", ("model",))
        self.rows = Histogram("mirlo_batch_rows", "Rows of a call.", ("model",), ROWS)
        self._all: list[Metric] = [value for value in vars(self).values() if isinstance(value, Metric)]

    def add(self, metric: Metric) -> None:
        """Add a metric."""
        self._all.append(metric)

    def text(self) -> str:
        """Return all metrics as text."""
        lines: list[str] = []
        for metric in self._all:
            lines += metric.head()
            lines += metric.lines()
        return "\n".join(lines) + "\n"
