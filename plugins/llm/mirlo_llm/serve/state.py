"""State that the endpoints of a server share."""

from __future__ import annotations

from dataclasses import dataclass

from mirlo_llm.serve.metrics import ServerMetrics
from mirlo_llm.serve.models import ModelPool
from mirlo_llm.serve.options import ServeOptions
from mirlo_llm.serve.unknown import UnknownKeys


@dataclass
class ServerState:
    """The models, the options and the metrics of a server."""

    options: ServeOptions
    metrics: ServerMetrics
    pool: ModelPool
    unknown: UnknownKeys
    is_stopping: bool = False
    """Whether the server is shutting down and refuses new requests."""
    failure: Exception | None = None
    """The error that prevented the models from loading, if any."""
