"""The loader `vulkan`: a compiled model on a Vulkan device, placed there by its first call."""

from __future__ import annotations

from mirlo.runtime.artifact import Artifact
from mirlo.runtime.loaders import LoadedCode
from mirlo.targets.gpu.device_layout import WhenCalled
from mirlo.targets.spirv.decisions import run
from mirlo.targets.spirv.model import VulkanModel
from mirlo.targets.spirv.vulkan import device


def load(artifact: Artifact) -> LoadedCode:
    """Make an artifact for Vulkan callable, on the default device."""
    return load_on(artifact, 0)


def load_on(artifact: Artifact, number: int) -> LoadedCode:
    """Make an artifact callable on the device with this number; discrete GPUs come first."""
    entry = WhenCalled(lambda: VulkanModel(device(number), artifact, run))

    def fill(byte: int) -> None:
        if entry.is_placed:
            entry.model.fill(byte)

    return LoadedCode(
        entry, keep=entry, on=lambda other: load_on(artifact, other),
        device_arena=artifact.metadata["program"]["arena"], has_memory=True, fill=fill,
    )  # fmt: skip
