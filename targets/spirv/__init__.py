"""Define target `spirv`: compute shaders for any device with Vulkan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from mirlo.passes.code_forms import CodeForm, KernelText
from mirlo.passes.targets import CompileOptions, Target
from mirlo.targets.gpu.pipeline import compile_pipeline
from mirlo.targets.pipelines import lowered_by

if TYPE_CHECKING:
    from mirlo.dialects.bindings import ir
    from mirlo.runtime.artifact import Artifact


class SpirvTarget(Target):
    """Compiles models to compute shaders."""

    def pipeline(self, options: CompileOptions) -> str:
        return compile_pipeline("spirv")

    def emit(self, module: ir.Module, options: CompileOptions) -> Artifact:
        from mirlo.targets.spirv.emit import emit

        return emit(module)

    def code(self, module: ir.Module, options: CompileOptions) -> Sequence[KernelText]:
        from mirlo.targets.spirv.emit import kernel_code

        return kernel_code(module, options)

    def has_device(self) -> bool:
        from mirlo.targets.spirv.vulkan import DeviceError, device

        try:
            device()
        except DeviceError:
            return False
        return True

    def requirements(self, options: str) -> Sequence[str]:
        return ("a device with Vulkan, and its driver (libvulkan.so.1)",)

    def pipelines(self) -> Mapping[str, Callable[[CompileOptions], str]]:
        return {"spirv-dialect": lowered_by("lower-to-spirv", self.pipeline)}

    def fingerprint(self, options: str) -> str:
        return "vulkan"


TARGET = SpirvTarget(
    name="spirv",
    help="GPUs with Vulkan, and its software devices, through SPIR-V",
    parent="gpu",
    rule_modules=("mirlo.targets.spirv.intrinsics", "mirlo.targets.spirv.legalize"),
    loader="vulkan",
    forms=(
        CodeForm("spirv-dialect", ".mlir", "//", "MLIR's SPIR-V dialect"),
        CodeForm("spirv", ".spv", help="a SPIR-V binary"),
    ),
    symbolic_dims=True,
    aliases=("vulkan", "vk", "opencl", "webgpu"),
)
