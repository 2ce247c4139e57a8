"""The interface of served models."""

from __future__ import annotations

from abc import ABC, abstractmethod

from mirlo.extend.runtime import MirloError
from mirlo_llm.serve.errors import RequestError
from mirlo_llm.serve.metrics import ServerMetrics
from mirlo_llm.serve.options import ServeOptions


class Admission:
    """A context that counts requests while it is entered."""

    def __init__(self, backend: Backend, count: int) -> None:
        self._backend, self._count = backend, count

    def __enter__(self) -> None:
        self._backend.admit(self._count)

    def __exit__(self, *error: object) -> None:
        self._backend.pending -= self._count


class Backend(ABC):
    """A loaded model that answers requests."""

    kind: str
    """"language", "embedding", "speech" or "tensors"."""

    def __init__(self, name: str, options: ServeOptions, metrics: ServerMetrics, parallel: int) -> None:
        """Store the options; `parallel` is the number of requests that are computed at a time."""
        self.name, self.options, self.metrics = name, options, metrics
        self.parallel, self.pending = parallel, 0
        self.mean_seconds = 0.5
        """How long a request takes, of the last ones."""

    @property
    def problem(self) -> MirloError | None:
        """Return the reason why the model cannot answer any more, if any."""
        return None

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Return the maximum number of bytes that the model uses."""

    @abstractmethod
    def warm(self) -> None:
        """Make a first call."""

    @abstractmethod
    def stop(self) -> None:
        """End the active requests."""

    @abstractmethod
    def fail_all(self) -> None:
        """Fail the waiting requests at shutdown."""

    def admitted(self, count: int) -> Admission:
        """Return a context that counts requests; entering raises an error with status 429 if too many wait."""
        return Admission(self, count)

    def admit(self, count: int) -> None:
        """Count new requests; raise an error with status 429 if too many wait."""
        most = self.parallel + self.options.queue
        if count > most:
            raise RequestError(400, f"a request may have up to {most} answers here, found {count}")
        if self.pending + count > most:
            self.metrics.refused.add(1, self.name)
            wait = max(1, min(60, round(self.mean_seconds * (self.pending + count - most) / self.parallel)))
            message = f"{self.pending} requests wait for model '{self.name}': try again in {wait} s"
            raise RequestError(429, message, code="rate_limit_exceeded", retry=wait)
        self.pending += count

    def took(self, seconds: float) -> None:
        """Record the duration of a request."""
        self.mean_seconds += 0.1 * (seconds - self.mean_seconds)
