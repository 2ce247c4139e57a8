"""The options of a deployment on a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from mirlo.extend.options import TEXT, check_options, integer, number, option, optional
from mirlo_llm.serve.ray.errors import RayError


@dataclass(frozen=True)
class FleetOptions:
    """Number, placement and memory of replicas."""

    min_replicas: int = option(1, "The minimum number of replicas.", kind=integer(1, 4096))
    max_replicas: int = option(4, "The maximum number of replicas.", kind=integer(1, 4096))
    per_node: int = option(
        1, "The maximum number of replicas on a node; with 1, a node has a model in memory once.", kind=integer(1, 256)
    )
    load: int | None = option(
        None,
        "Requests that run and wait for each replica, above which there are more replicas; `slots` by default.",
        kind=optional(integer(1, 1 << 16)),
    )
    cpus: int = option(1, "Cores of a replica; `threads` is the same unless it is given.", kind=integer(1, 4096))
    models_per_replica: int = option(
        0,
        "The maximum number of models in a replica's memory: each is loaded on demand, and requests are routed to "
        "replicas with their model. With 0 each replica loads all models when it starts.",
        kind=integer(0, 1 << 16),
    )
    fronts: int = option(1, "Processes that check requests and send them to replicas.", kind=integer(1, 256))
    front_resource: str | None = option(
        "node:__internal_head__",
        "The resource of the nodes that have fronts, by default the head; None for any node.",
        kind=optional(TEXT),
    )
    upscale_seconds: float = option(5.0, "Time above the load until there are more replicas.", kind=number(0, 3600))
    downscale_seconds: float = option(300.0, "Time below the load until there are fewer.", kind=number(0, 86400))
    retry_seconds: float = option(
        60.0, "Time in which a request is sent to another replica after one was lost.", kind=number(0, 3600)
    )

    def __post_init__(self) -> None:
        check_options(self, RayError)
        if self.max_replicas < self.min_replicas:
            raise RayError(f"max_replicas: expected at least {self.min_replicas} (min_replicas)")
