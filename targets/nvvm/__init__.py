"""Define target `nvvm`: NVIDIA GPUs, through LLVM's NVPTX back end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from mirlo.passes.code_forms import CodeForm, KernelText
from mirlo.passes.figures import Figures
from mirlo.passes.options import quote
from mirlo.passes.targets import CompileOptions, Target, ThreadLimits
from mirlo.targets.gpu.pipeline import compile_pipeline
from mirlo.targets.nvvm import device
from mirlo.targets.nvvm.options import parse_options
from mirlo.targets.pipelines import lowered_by

if TYPE_CHECKING:
    from mirlo.dialects.bindings import ir
    from mirlo.runtime.artifact import Artifact


class NvvmTarget(Target):
    """Compiles models to PTX."""

    def pipeline(self, options: CompileOptions) -> str:
        chosen = parse_options(getattr(options, "target_options", ""))
        machine = f"machine={chosen.machine}"
        planning = (
            f"apply-tuning{{target=nvvm}},transpose-weights{{{machine}}},remove-dead,schedule{{target=nvvm {machine}}}"
        )
        listed = ",".join(quote(name) for name in chosen.libraries)
        functions = f"find-device-functions{{libraries={{{listed}}}}}" if listed else ""
        math = "call-libdevice" if chosen.libdevice else ""
        return compile_pipeline("nvvm", planning, math, "share-reciprocals", functions, shuffles=True)

    def emit(self, module: ir.Module, options: CompileOptions) -> Artifact:
        from mirlo.targets.nvvm.emit import emit

        chosen = parse_options(getattr(options, "target_options", ""))
        cubin, libraries = chosen.cubin, chosen.libraries
        return emit(module, chosen.chip, options.opt_level, cubin=cubin, libraries=libraries, cache=options.cache)

    def code(self, module: ir.Module, options: CompileOptions) -> Sequence[KernelText]:
        from mirlo.targets.nvvm.emit import kernel_code

        chosen = parse_options(options.target_options)
        return kernel_code(module, chosen.chip, options.form, options.opt_level, chosen.libraries, options.kernel)

    def fingerprint(self, options: str) -> str:
        chosen = parse_options(options)
        digest = ""
        if chosen.libraries:
            from mirlo.targets.nvvm.libraries import digest_of

            digest = f" {digest_of(chosen.libraries)}"
        return f"{chosen.chip.name} {chosen.chip.units}{digest}"

    def space(self, function: ir.Operation | ir.OpView, options: CompileOptions) -> list[dict[str, int]]:
        from mirlo.targets.nvvm.tuning import space

        return space(function, options)

    def speed(self, options: str) -> Figures:
        from mirlo.targets.nvvm.speeds import MIRLO_KERNELS, figures_of

        chosen = parse_options(options)
        return figures_of(chosen.chip.name, MIRLO_KERNELS, chosen.tf32)

    def requirements(self, options: str) -> Sequence[str]:
        chip = parse_options(options).chip.name
        later = "" if chip.endswith("a") else " or later"
        return (f"NVIDIA GPU {chip}{later}", "NVIDIA's driver (libcuda.so.1)")

    def has_device(self) -> bool:
        return device.capability() is not None

    def pipelines(self) -> Mapping[str, Callable[[CompileOptions], str]]:
        return {"nvvm-dialect": lowered_by("lower-to-nvvm", self.pipeline)}


TARGET = NvvmTarget(
    name="nvvm",
    help="NVIDIA GPUs, through PTX; nvvm{chip=sm_90a tf32=true}: the chip, and f32 on its matrix units",
    parent="gpu",
    rule_modules=(
        "mirlo.targets.nvvm.intrinsics",
        "mirlo.targets.nvvm.schedule.products",
        "mirlo.targets.nvvm.schedule.attention",
        "mirlo.targets.nvvm.schedule.wide",
        "mirlo.targets.nvvm.schedule.warprows",
    ),
    loader="cuda",
    forms=(
        CodeForm("nvvm-dialect", ".mlir", "//", "MLIR's LLVM and NVVM dialects"),
        CodeForm("llvm-ir", ".ll", ";", "LLVM IR, optimized"),
        CodeForm("ptx", ".ptx", "//", "PTX"),
    ),
    symbolic_dims=True,
    threads=ThreadLimits(max_grid=(2**31 - 1, 65535, 65535), max_lanes=16),
    aliases=("cuda", "nvidia", "ptx", "nvptx"),
    takes_options=True,
)
