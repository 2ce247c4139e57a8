"""Kernels timed on other machines, through Ray: each worker compiles for its own CPU and times there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from mirlo.driver.tune.measure import ChoiceTiming, time_choices
from mirlo.driver.tune.tasks import TuningTask
from mirlo.runtime.errors import MirloError
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    import ray


LOOK_SECONDS = 2.0
"""Time between two looks at the cluster while a measurement runs."""
GONE_SECONDS = 20.0
"""Time without any worker after which a measurement is given up; a node that starts again is back before."""
MAX_SECONDS = 300.0
"""Longest time of a measurement, with compilation; those of large kernels take 20 s."""


class FleetError(MirloError):
    """Ray is not installed, or the cluster is unreachable."""

    error_code = "MIR0605"
    remedy = "Start the workers, and see what the one in the message reports."


@dataclass
class Fleet:
    """Times kernels on a Ray cluster; `address` is that of the cluster, `local` starts one here.

    Workers need Mirlo installed, and the CPU for which is tuned: the resource `mirlo_<name>` can be used to pick them,
    with `resource="mirlo_zen5"`. A worker takes a whole machine (`cpus`), so that timings do not disturb each other.
    """

    address: str = "local"
    resource: str | None = None
    cpus: float = 1.0
    _remote: ray.remote_function.RemoteFunction | None = field(default=None, init=False, repr=False)

    def ratios(self, task: TuningTask, choices: Sequence[dict[str, int]], target: str, threads: int) -> ChoiceTiming:
        """Return times measured by an idle worker."""
        timer = self._timer()
        import ray

        measurement = timer.remote(task, list(choices), target, threads)
        start = last_seen = time.monotonic()
        while not ray.wait([measurement], timeout=LOOK_SECONDS)[0]:
            now = time.monotonic()
            last_seen = now if self.workers_alive() else last_seen
            if now - last_seen > GONE_SECONDS or now - start > MAX_SECONDS:
                ray.cancel(measurement, force=True)
                raise FleetError(
                    f"no worker is left in the Ray cluster at '{self.address}'{self._wanted}: start workers again"
                    if now - last_seen > GONE_SECONDS
                    else f"a measurement of @{task.function} takes longer than {MAX_SECONDS:.0f} s: is a worker stuck?"
                )
        try:
            result: ChoiceTiming = ray.get(measurement)
        except MirloError:
            raise
        except Exception as error:
            raise FleetError(f"a measurement of @{task.function} failed on a worker: {error}") from error
        return result

    @property
    def workers(self) -> int:
        """Return how many kernels are timed at a time: one for each worker that there is now."""
        self._timer()
        return max(self.workers_alive(), 1)

    def workers_alive(self) -> int:
        """Return how many measurements the nodes that are alive can run at a time."""
        import ray

        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        fitting = [node for node in nodes if self.resource is None or node.get(self.resource, 0) >= 1]
        return sum(int(node.get("CPU", 0) // self.cpus) for node in fitting)

    @property
    def _wanted(self) -> str:
        return f" with the resource '{self.resource}'" if self.resource else ""

    def _timer(self) -> ray.remote_function.RemoteFunction:
        if self._remote is not None:
            return self._remote
        try:
            import ray
        except ImportError:
            raise FleetError("ray is not installed: pip install 'mirlo[ray]'") from None
        try:
            if not ray.is_initialized():
                ray.init(
                    **({"num_cpus": 1} if self.address == "local" else {"address": self.address}), logging_level=40
                )
        except Exception as error:
            raise FleetError(f"no Ray cluster at '{self.address}': {error}") from error
        resources = {self.resource: 1.0} if self.resource else None
        self._remote = ray.remote(time_choices).options(num_cpus=self.cpus, resources=resources)
        return self._remote
