"""Target `llvm`: machine code for the CPU through LLVM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from mirlo.passes.code_forms import CodeForm, KernelText
from mirlo.passes.figures import Figures
from mirlo.passes.targets import CompileOptions, Target
from mirlo.targets.pipelines import lowered_by

if TYPE_CHECKING:
    from mirlo.dialects.bindings import ir
    from mirlo.passes.figures import KernelExpectation
    from mirlo.passes.instrumentation import Preparation
    from mirlo.passes.schedule.primitives.commands import CommandProgram
    from mirlo.runtime.artifact import Artifact


class LlvmTarget(Target):
    """Compiles models to machine code of a CPU."""

    def pipeline(self, options: CompileOptions) -> str:
        from mirlo.targets.llvm.pipeline import compile_pipeline

        return compile_pipeline(options)

    def emit(self, module: ir.Module, options: CompileOptions) -> Artifact:
        from mirlo.targets.llvm.emit import emit

        return emit(module, options)

    def code(self, module: ir.Module, options: CompileOptions) -> Sequence[KernelText]:
        from mirlo.targets.llvm.emit import kernel_code

        return kernel_code(module, options)

    def fingerprint(self, options: str) -> str:
        from mirlo.targets.llvm.options import parse_options

        return parse_options(options).identity

    def saves_memory(self, options: CompileOptions) -> bool:
        from mirlo.targets.llvm.options import saves_memory

        return saves_memory(options)

    def invariant_options(self, options: str) -> str:
        from mirlo.targets.llvm.options import invariant_options

        return invariant_options(options)

    def requirements(self, options: str) -> Sequence[str]:
        from mirlo.targets.llvm.cpus import features_text
        from mirlo.targets.llvm.options import parse_options

        processor = parse_options(options).processor
        return (f"{processor.triple} with {features_text(processor.arch, processor.features)}",)

    def prepare(self, options: CompileOptions) -> Preparation:
        from mirlo.targets.llvm.compile_ahead import CompileAhead

        return CompileAhead(options)

    def space(self, function: ir.Operation | ir.OpView, options: CompileOptions) -> list[dict[str, int]]:
        from mirlo.targets.llvm.tuning import space

        return space(function, options)

    def expected(
        self, function: ir.Operation | ir.OpView, values: Mapping[str, int], options: CompileOptions
    ) -> float | None:
        from mirlo.targets.llvm.tuning import expected

        return expected(function, values, options)

    def lanes(self, machine: str | None, element_bytes: int) -> int:
        from mirlo.targets.llvm.options import find_machine

        return find_machine(machine).lanes(element_bytes)

    def expectation(
        self, function: ir.Operation | ir.OpView, values: Mapping[str, int], options: CompileOptions
    ) -> KernelExpectation | None:
        from mirlo.targets.llvm.tuning import expectation

        return expectation(function, values, options)

    def precision_options(self, dtype: str, options: CompileOptions) -> str:
        from mirlo.passes.graph.mixed_precision import ALL, CONSTANTS
        from mirlo.targets.llvm.options import machine_for, saves_memory

        machine = machine_for(options)
        if dtype == "bf16" and (machine.has_fast_bf16 or "bf16" in machine.tiles):
            return f"operands={ALL}"
        # Results of a row may not depend on how many rows there are, nor may a model that saves memory take more of it.
        is_always = machine.invariant or saves_memory(options)
        return (
            f"operands={CONSTANTS}"
            if is_always
            else f"operands={CONSTANTS} max-rows={max(1, machine.compute_bound_rows - 1)}"
        )

    def fastest_precision(self, options: CompileOptions) -> str | None:
        from mirlo.targets.llvm.options import machine_for

        machine = machine_for(options)
        return "bf16" if machine.has_fast_bf16 or "bf16" in machine.tiles else None

    def operator_choices(self) -> Mapping[str, type]:
        from mirlo.targets.llvm.choices import ConvolutionChoices

        return {"relax.conv": ConvolutionChoices}

    def definitions(self) -> Mapping[str, type]:
        from mirlo.targets.llvm.nbits.definition import NbitsDefinition
        from mirlo.targets.llvm.nbits.description import NAME

        return {NAME: NbitsDefinition}

    def instructions(self) -> Sequence[CommandProgram]:
        from mirlo.targets.llvm.tile_programs import tile_programs

        return tile_programs()

    def pipelines(self) -> Mapping[str, Callable[[CompileOptions], str]]:
        return {"llvm-dialect": lowered_by("lower-to-llvm", self.pipeline)}


TARGET = LlvmTarget(
    name="llvm",
    help="CPUs, through LLVM: this machine's, or one that options describe",
    rule_modules=(
        "mirlo.targets.llvm.intrinsics",
        "mirlo.targets.llvm.legalize",
        "mirlo.targets.llvm.nbits",
        "mirlo.targets.llvm.tile_instructions",
        "mirlo.targets.llvm.schedule.contraction",
        "mirlo.targets.llvm.schedule.elementwise",
        "mirlo.targets.llvm.schedule.rows",
        "mirlo.targets.llvm.schedule.window",
        "mirlo.targets.llvm.schedule.stages",
        "mirlo.targets.llvm.schedule.attention",
        "mirlo.targets.llvm.winograd.rules",
    ),
    loader="llvm",
    takes_options=True,
    chooses_at_load=True,
    forms=(
        CodeForm("llvm-dialect", ".mlir", "//", "MLIR's LLVM dialect"),
        CodeForm("llvm-ir", ".ll", ";", "LLVM IR, optimized"),
        CodeForm("asm", ".s", "#", "assembly"),
        CodeForm("obj", ".o", help="an object file"),
    ),
    makes_libraries=True,
    symbolic_dims=True,
    aliases=("cpu", "native", "host", "x86", "arm", "aarch64"),
    figures=Figures(gflops=100.0, gbytes=10.0, call_us=0.3),
)
