"""Programs on the simulator: the loader of regions in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mirlo.extend import ExternalArtifact, ExternalFunctions, LoadContext, native_code
from mirlo_systolic.simulator import Step, call

_STEPS: dict[str, Mapping[str, Step]] = {}


def load(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
    """Return functions that run the programs of regions on the simulator, and keep the cycles of their steps."""
    code = native_code(artifact)
    names: dict[str, list[str]] = code.metadata["steps"]

    def function(region: str) -> Callable[..., None]:
        program = code.programs[region]

        def run(*tensors: np.ndarray) -> None:
            _STEPS[region] = dict(zip(names[region], call(program, tensors, len(names[region])), strict=True))

        return run

    return ExternalFunctions({name: function(name) for name in artifact.functions})


def last_steps(executable: Any) -> dict[str, Mapping[str, Step]]:
    """Return by region the cycles of its layers in the last call."""
    return {
        name: _STEPS[name]
        for artifact in executable.artifact.externals
        if artifact.target == "systolic"
        for name in artifact.functions
    }
