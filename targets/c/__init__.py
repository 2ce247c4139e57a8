"""Target `c`: readable C source for parts of a model or for all of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.passes.code_forms import CodeForm, KernelText
from mirlo.passes.figures import Figures
from mirlo.passes.targets import CompileOptions, Target
from mirlo.runtime.loaders import llvm_host

if TYPE_CHECKING:
    from mirlo.dialects.bindings import ir
    from mirlo.runtime.artifact import Artifact


class CTarget(Target):
    """Compiles models to C source."""

    def pipeline(self, options: CompileOptions) -> str:
        from mirlo.targets.c.whole import compile_pipeline

        return compile_pipeline(options)

    def emit(self, module: ir.Module, options: CompileOptions) -> Artifact:
        from mirlo.targets.c.artifact import emit

        return emit(module, options)

    def invariant_options(self, options: str) -> str:
        return options  # each sum is a loop of its own over scalars, in the order of its definition

    def code(self, module: ir.Module, options: CompileOptions) -> Sequence[KernelText]:
        from mirlo.targets.c.artifact import kernel_code

        return kernel_code(module, options)

    def fingerprint(self, options: str) -> str:
        from mirlo.passes.byoc.codegen import generator_of

        return f"{llvm_host()['triple']} {generator_of('c', options).fingerprint()}"


TARGET = CTarget(
    name="c",
    help="C source, compiled by the system's C compiler",
    rule_modules=("mirlo.targets.c.intrinsics", "mirlo.targets.c.legalize", "mirlo.targets.c.schedule"),
    loader="llvm",
    codegen="mirlo.targets.c.generator:CGenerator",
    takes_options=True,
    forms=(CodeForm("c", ".c", "//", "C99"),),
    makes_source=True,
    has_vectors=False,
    symbolic_dims=True,
    figures=Figures(gflops=2.0, gbytes=5.0, call_us=0.2, scales=False),
)
