"""Regions at run time: computed by `tosa_reference_model`, since there is no device."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable

import numpy as np

from mirlo.extend.runtime import ExternalArtifact, ExternalFunctions, LoadContext
from mirlo_ethos_u.tools import execute, missing_tools


def load(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
    """Return functions that run the regions of an artifact with TOSA's reference model."""
    if "tosa-tools" in missing_tools():
        raise RuntimeError("running regions of target ethos-u needs the reference model: pip install tosa-tools")
    with zipfile.ZipFile(io.BytesIO(artifact.data)) as archive:
        flatbuffers = {name: archive.read(f"{name}.tosa") for name in artifact.functions}

    def function(name: str) -> Callable[..., None]:
        count = artifact.metadata["regions"][name]["inputs"]
        flatbuffer = flatbuffers[name]

        def call(*tensors: np.ndarray) -> None:
            outputs = tensors[count:]
            for output, found in zip(outputs, execute(flatbuffer, tensors[:count], len(outputs)), strict=True):
                output[...] = found

        return call

    return ExternalFunctions({name: function(name) for name in artifact.functions})
