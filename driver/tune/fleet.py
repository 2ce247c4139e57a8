"""Kernels timed on other machines, through Ray: each worker compiles for its own CPU and times there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirlo.driver.tune.measure import ChoiceTiming, time_choices
from mirlo.driver.tune.tasks import TuningTask
from mirlo.runtime.errors import MirloError

if TYPE_CHECKING:
    import ray


class FleetError(MirloError):
    """Ray is not there, or the cluster is not."""


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
        import ray

        result: ChoiceTiming = ray.get(self._timer().remote(task, list(choices), target, threads))
        return result

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
