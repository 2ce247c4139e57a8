"""Where compiled models run: in this process, or on a board with a runner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mirlo.runtime.artifact import Artifact
    from mirlo.runtime.params import ParameterStore
    from mirlo.runtime.remote.model import RemoteModel


class ModelRunner(Protocol):
    """Loads compiled models on another machine."""

    def __hash__(self) -> int:
        """Return the same for the same machine."""

    def load(self, artifact: Artifact, store: ParameterStore) -> RemoteModel:
        """Return the model, whose calls run there."""


_RUNNER: ContextVar[ModelRunner | None] = ContextVar("model_runner", default=None)


@contextmanager
def models_run_on(runner: ModelRunner | None) -> Iterator[None]:
    """Run models that are compiled in this block on another machine, or on this one for None."""
    before = _RUNNER.set(runner)
    try:
        yield
    finally:
        _RUNNER.reset(before)


def model_runner() -> ModelRunner | None:
    """Return where models run that are compiled now; None: in this process."""
    return _RUNNER.get()
