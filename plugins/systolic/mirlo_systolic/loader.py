"""Programs on the simulator: the loader of regions in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mirlo.extend.runtime import DeviceStep, ExternalArtifact, ExternalFunctions, LoadContext, native_code
from mirlo_systolic.simulator import PARTS, Step, call


def load(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
    """Return functions that run the programs of regions on the simulator, and report the cycles of their steps."""
    code = native_code(artifact)
    names: dict[str, list[str]] = code.metadata["steps"]
    last: dict[str, list[Step]] = {}

    def function(region: str) -> Callable[..., None]:
        program = code.programs[region]

        def run(*tensors: np.ndarray) -> None:
            last[region] = call(program, tensors, len(names[region]))

        return run

    def steps(region: str) -> Sequence[DeviceStep]:
        return [
            DeviceStep(name, step.cycles, "cycles", {part: getattr(step, part) for part in PARTS})
            for name, step in zip(names[region], last.get(region, ()), strict=False)
        ]

    return ExternalFunctions({name: function(name) for name in artifact.functions}, steps=steps)
