"""Define target `spirv`: compute shaders for any device with Vulkan."""

from __future__ import annotations

from typing import Any

from mirlo.passes.targets import Target


def _pipeline(options: Any = None) -> str:
    from mirlo.targets.gpu.pipeline import compile_pipeline

    return compile_pipeline("spirv")


def _emit(module: Any, options: Any) -> Any:
    from mirlo.targets.spirv.emit import emit

    return emit(module)


TARGET = Target(
    name="spirv",
    help="GPUs with Vulkan, and its software devices, through SPIR-V",
    parent="gpu",
    rule_modules=("mirlo.targets.spirv.intrinsics",),
    pipeline=_pipeline,
    emit=_emit,
    symbolic_dims=True,
    aliases=("vulkan", "vk", "opencl", "webgpu"),
    fingerprint=lambda options: "vulkan",
)
