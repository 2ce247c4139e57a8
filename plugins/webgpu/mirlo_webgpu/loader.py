"""The loader `webgpu`: a compiled model on a device with WebGPU, uploaded by its first call."""

from __future__ import annotations

from mirlo.extend.gpu import WhenCalled
from mirlo.extend.runtime import LoadedCode, ModelArtifact
from mirlo_webgpu.device import device
from mirlo_webgpu.model import WebGpuModel


def load(artifact: ModelArtifact) -> LoadedCode:
    """Make an artifact callable, on the default device."""
    return load_on(artifact, 0)


def load_on(artifact: ModelArtifact, number: int) -> LoadedCode:
    """Make an artifact callable on the device with this number; discrete GPUs come first."""
    entry = WhenCalled(lambda: WebGpuModel(device(number), artifact))
    return LoadedCode(
        entry, keep=entry, on=lambda other: load_on(artifact, other),
        device_arena=artifact.metadata["program"]["arena"], has_memory=True,
    )  # fmt: skip
