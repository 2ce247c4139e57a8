"""What the endpoints of a server share."""

from __future__ import annotations

from mirlo.runtime.records import dataclass
from mirlo.serve.metrics import ServerMetrics
from mirlo.serve.models import ModelPool
from mirlo.serve.options import ServeOptions


@dataclass
class ServerState:
    """The models, the options and the figures of a server."""

    options: ServeOptions
    metrics: ServerMetrics
    pool: ModelPool
    is_stopping: bool = False
    """Whether new requests are refused, as the server ends."""
    failure: Exception | None = None
    """Why the models could not be loaded."""
