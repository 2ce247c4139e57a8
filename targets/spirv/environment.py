"""Properties of the consumers of kernels: capabilities of SPIR-V, and the types that must be emulated without them."""

from __future__ import annotations

from mirlo.runtime.records import dataclass

VERSION = "v1.3"


@dataclass(frozen=True)
class SpirvEnvironment:
    """The consumer of kernels in the SPIR-V dialect."""

    api: str
    """What the consumer is called, for errors."""
    capabilities: tuple[str, ...]
    """Capabilities that kernels may use. Each kernel lists those it does use."""
    extensions: tuple[str, ...] = ()
    reads_reports: bool = False
    """Whether the loader reads what kernels report of loops that the device ended (`ended_loops.py`)."""

    def lacks(self, capability: str) -> bool:
        """Return whether kernels may not use a capability."""
        return capability not in self.capabilities

    def attribute(self) -> str:
        """Return the attribute of a module that conversions read."""
        capabilities, extensions = ", ".join(self.capabilities), ", ".join(self.extensions)
        return (
            f"#spirv.target_env<#spirv.vce<{VERSION}, [{capabilities}], [{extensions}]>, api=Vulkan, "
            "#spirv.resource_limits<>>"
        )

    def attach(self) -> str:
        """Return the pass that marks the kernels of a module with the environment."""
        return (
            f"spirv-attach-target{{ver={VERSION} caps={','.join(self.capabilities)} "
            f"exts={','.join(self.extensions)} client_api=Vulkan}}"
        )


_STORAGE = "SPV_KHR_storage_buffer_storage_class"

VULKAN = SpirvEnvironment(
    "Vulkan",
    (
        *("Shader", "Int8", "Int16", "Int64", "Float16", "Float64"),
        *("StorageBuffer8BitAccess", "StorageBuffer16BitAccess"),
        *("GroupNonUniform", "GroupNonUniformArithmetic", "GroupNonUniformShuffle"),
    ),
    (_STORAGE, "SPV_KHR_8bit_storage", "SPV_KHR_16bit_storage"),
    reads_reports=True,
)
"""Any device with Vulkan: the loader requests of it what a model's kernels use."""
WEBGPU = SpirvEnvironment("WebGPU", ("Shader",), (_STORAGE,))
"""Every device with WebGPU: 32 bits in memory and in arithmetic."""
