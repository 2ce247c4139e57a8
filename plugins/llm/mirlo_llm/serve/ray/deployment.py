"""Served models on a cluster: an application of Ray Serve."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mirlo.extend.compilation import OPTIONS
from mirlo.extend.options import refuse_unknown
from mirlo_llm.serve.options import ModelSource, ServeOptions, parse_models
from mirlo_llm.serve.ray.errors import require_ray
from mirlo_llm.serve.ray.front import Front
from mirlo_llm.serve.ray.options import FleetOptions
from mirlo_llm.serve.ray.replica import ModelReplica

if TYPE_CHECKING:
    from ray.serve import Application

MODELS, FRONT = "models", "front"
"""The names of the application's deployments."""
HEALTH_SECONDS, HEALTH_TIMEOUT_SECONDS = 2.0, 10.0
"""Seconds between checks of a replica, and seconds without an answer after which it is lost."""
FRONT_REQUESTS = 4096
"""Most concurrent requests of a front; most of them wait."""


class DeploymentOptions(NamedTuple):
    """The arguments of `deployment`, grouped by their use."""

    fleet: FleetOptions
    served: ServeOptions
    compiled: dict[str, object]


def deployment(*models: str, **options: Any) -> Application:
    """Return an application of Ray Serve that answers requests as `mirlo serve` does, by replicas on many nodes.

    `models` are as for `mirlo serve`, `PATH` or `NAME=PATH`, with paths that each node has. `options` are those of
    `FleetOptions`, of a server (`ServeOptions`) and of a compilation.
    """
    require_ray("serve")
    sources = parse_models(models)
    divided = _divide_options(options)
    return _front(sources, divided).bind(_replicas(sources, divided))


def _divide_options(options: Mapping[str, Any]) -> DeploymentOptions:
    kinds = [{field.name for field in dataclasses.fields(kind)} for kind in (FleetOptions, ServeOptions)]
    refuse_unknown("mirlo.serve.deployment", options, [*sorted(kinds[0] | kinds[1]), *OPTIONS])
    fleet, served = ({name: options[name] for name in options if name in names} for names in kinds)
    compiled = {name: options[name] for name in options if name not in kinds[0] | kinds[1]}
    fleet_options = FleetOptions(**fleet)
    return DeploymentOptions(fleet_options, ServeOptions(**served), {"threads": fleet_options.cpus, **compiled})


def _replicas(sources: Sequence[ModelSource], options: DeploymentOptions) -> Application:
    from ray import serve

    fleet, served = options.fleet, options.served
    load = fleet.load or served.slots
    # A replica has no address and needs no key: its requests come from a front, which has checked them.
    own = dataclasses.replace(
        served, keys=(), host="127.0.0.1", queue=max(served.queue, 2 * load),
        loaded=fleet.models_per_replica or served.loaded, is_lazy=fleet.models_per_replica > 0 or served.is_lazy,
    )  # fmt: skip
    scaling = {
        "min_replicas": fleet.min_replicas, "max_replicas": fleet.max_replicas, "target_ongoing_requests": load,
        "upscale_delay_s": fleet.upscale_seconds, "downscale_delay_s": fleet.downscale_seconds,
        "look_back_period_s": max(2.0, min(30.0, fleet.upscale_seconds)),
    }  # fmt: skip
    deployed = serve.deployment(
        ModelReplica, name=MODELS, max_ongoing_requests=2 * load, max_queued_requests=served.queue,
        autoscaling_config=scaling, max_replicas_per_node=fleet.per_node,
        graceful_shutdown_timeout_s=served.grace, health_check_period_s=HEALTH_SECONDS,
        health_check_timeout_s=HEALTH_TIMEOUT_SECONDS, ray_actor_options={"num_cpus": fleet.cpus},
    )  # fmt: skip
    return deployed.bind(sources, own, options.compiled)


def _front(sources: Sequence[ModelSource], options: DeploymentOptions) -> Any:
    """Return the deployment of the front, bound to the replicas so that they are deployed together."""
    from ray import serve

    fleet, served = options.fleet, options.served
    names = [source.name for source in sources]

    def build() -> Front:
        replicas = serve.get_deployment_handle(MODELS, serve.get_replica_context().app_name)
        return Front(replicas, names, served, fleet.retry_seconds)

    resources = {fleet.front_resource: 0.001} if fleet.front_resource else {}
    return serve.deployment(
        serve.ingress(build)(), name=FRONT, num_replicas=fleet.fronts, max_ongoing_requests=FRONT_REQUESTS,
        health_check_period_s=HEALTH_SECONDS, health_check_timeout_s=HEALTH_TIMEOUT_SECONDS,
        graceful_shutdown_timeout_s=served.grace, ray_actor_options={"num_cpus": 0, "resources": resources},
    )  # fmt: skip
