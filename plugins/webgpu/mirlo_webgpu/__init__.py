"""The target `webgpu`: kernels in WGSL, which `wgpu` runs by Metal, Direct3D or Vulkan, and browsers run."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.extend.gpu import gpu_pipeline
from mirlo.extend.ops import ir
from mirlo.extend.runtime import ModelArtifact
from mirlo.extend.target import CodeForm, CompileOptions, KernelText, Target, ThreadLimits

MAX_SHARED = 16 << 10
"""Bytes that the threads of a block may share on every device."""
ALIGNMENT = 256
"""Bytes that offsets of bound memory are multiples of on every device."""


def _pipeline(options: CompileOptions | None = None) -> str:
    return gpu_pipeline("webgpu", alignment=ALIGNMENT)


def _emit(module: ir.Module, options: CompileOptions) -> ModelArtifact:
    from mirlo_webgpu.emit import emit

    return emit(module)


def _code(module: ir.Module, options: CompileOptions) -> Sequence[KernelText]:
    from mirlo_webgpu.emit import kernel_code

    return kernel_code(module)


def _has_device() -> bool:
    from mirlo_webgpu.device import DeviceError, device

    try:
        device()
    except DeviceError:
        return False
    return True


def _requirements(options: str) -> Sequence[str]:
    return ("a device with Metal, Direct3D 12 or Vulkan, and the package wgpu",)


TARGET = Target(
    name="webgpu",
    help="GPUs with Metal, Direct3D or Vulkan, and browsers, through WGSL",
    parent="spirv",
    pipeline=_pipeline,
    emit=_emit,
    loader="webgpu",
    requirements=_requirements,
    forms=(CodeForm("wgsl", ".wgsl", "//", "WGSL"),),
    code=_code,
    aliases=("wgpu", "wgsl", "metal", "d3d12", "direct3d"),
    fingerprint=lambda options: "webgpu",
    has_device=_has_device,
    threads=ThreadLimits(max_threads=256, max_block=(256, 256, 64), max_shared=MAX_SHARED),
)
"""The limits are those that every device with WebGPU has."""
