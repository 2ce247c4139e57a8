"""Define target `spirv`: compute shaders for any device with Vulkan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.passes.code_forms import CodeForm, KernelText
from mirlo.passes.targets import CompileOptions, Target
from mirlo.targets.pipelines import lowered_by

if TYPE_CHECKING:
    from mirlo.dialects.bindings import ir
    from mirlo.runtime.artifact import Artifact


def _pipeline(options: CompileOptions | None = None) -> str:
    from mirlo.targets.gpu.pipeline import compile_pipeline

    return compile_pipeline("spirv")


def _emit(module: ir.Module, options: CompileOptions) -> Artifact:
    from mirlo.targets.spirv.emit import emit

    return emit(module)


def _code(module: ir.Module, options: CompileOptions) -> Sequence[KernelText]:
    from mirlo.targets.spirv.emit import kernel_code

    return kernel_code(module, options)


def _has_device() -> bool:
    from mirlo.targets.spirv.vulkan import DeviceError, device

    try:
        device()
    except DeviceError:
        return False
    return True


def _requirements(options: str) -> Sequence[str]:
    return ("a device with Vulkan, and its driver (libvulkan.so.1)",)


TARGET = Target(
    name="spirv",
    help="GPUs with Vulkan, and its software devices, through SPIR-V",
    parent="gpu",
    rule_modules=("mirlo.targets.spirv.intrinsics",),
    pipeline=_pipeline,
    emit=_emit,
    loader="vulkan",
    requirements=_requirements,
    forms=(
        CodeForm("spirv-dialect", ".mlir", "//", "MLIR's SPIR-V dialect"),
        CodeForm("spirv", ".spv", help="a SPIR-V binary"),
    ),
    code=_code,
    pipelines={"spirv-dialect": lowered_by("lower-to-spirv", _pipeline)},
    symbolic_dims=True,
    aliases=("vulkan", "vk", "opencl", "webgpu"),
    fingerprint=lambda options: "vulkan",
    has_device=_has_device,
)
