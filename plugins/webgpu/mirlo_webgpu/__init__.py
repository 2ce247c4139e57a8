"""The target `webgpu`: kernels in WGSL, which `wgpu` runs by Metal, Direct3D or Vulkan, and browsers run."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.extend.gpu import gpu_pipeline
from mirlo.extend.ops import ir
from mirlo.extend.runtime import ModelArtifact
from mirlo.extend.target import CodeForm, CompileOptions, KernelText, Target, ThreadLimits

MAX_SHARED = 16 << 10
"""Shared memory per block in bytes that every device has."""
ALIGNMENT = 256
"""Alignment in bytes of bound ranges that every device accepts."""


class WebGpuTarget(Target):
    """Compiles models to WGSL."""

    def pipeline(self, options: CompileOptions) -> str:
        return gpu_pipeline("webgpu", alignment=ALIGNMENT)

    def emit(self, module: ir.Module, options: CompileOptions) -> ModelArtifact:
        from mirlo_webgpu.emit import emit

        return emit(module)

    def code(self, module: ir.Module, options: CompileOptions) -> Sequence[KernelText]:
        from mirlo_webgpu.emit import kernel_code

        return kernel_code(module)

    def has_device(self) -> bool:
        from mirlo_webgpu.device import DeviceError, device

        try:
            device()
        except DeviceError:
            return False
        return True

    def requirements(self, options: str) -> Sequence[str]:
        return ("a device with Metal, Direct3D 12 or Vulkan, and the package wgpu",)

    def fingerprint(self, options: str) -> str:
        return "webgpu"


TARGET = WebGpuTarget(
    name="webgpu",
    help="GPUs with Metal, Direct3D or Vulkan, and browsers, through WGSL",
    parent="spirv",
    loader="webgpu",
    forms=(CodeForm("wgsl", ".wgsl", "//", "WGSL"),),
    aliases=("wgpu", "wgsl", "metal", "d3d12", "direct3d"),
    threads=ThreadLimits(max_threads=256, max_block=(256, 256, 64), max_shared=MAX_SHARED),
)
"""The limits that every device with WebGPU guarantees."""
