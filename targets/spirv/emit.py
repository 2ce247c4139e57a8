"""Emission of an artifact from a planned module: SPIR-V binaries and the host program."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import ENTRY_NAME
from mirlo.passes.code_forms import KernelText
from mirlo.passes.targets import CompileOptions, TargetError
from mirlo.runtime.artifact import Artifact
from mirlo.runtime.callbacks import Expected, checked, each_is
from mirlo.targets.gpu.host_functions import build_host_program
from mirlo.targets.gpu.kernels import KernelCode, kernel_launchers, pack
from mirlo.targets.planned import kernel_rows, planned_entry, run_time_facts, signature_of
from mirlo.targets.spirv.binary import lower_to_spirv, to_binaries
from mirlo.targets.spirv.large import split_large

BINARY = "spirv"
"""The form of code that drivers take."""


KernelCompiler = Callable[[ir.Module], Sequence[KernelCode]]
"""Returns the code of each kernel of a module, which is consumed."""
_KERNELS = Expected("a list of KernelCode", each_is(lambda each: isinstance(each, KernelCode)))


def emit(module: ir.Module) -> Artifact:
    """Make the artifact of a module that went through the target's pipeline. The module is consumed."""
    return emit_kernels(module, "spirv", "vulkan", to_binaries)


def emit_kernels(module: ir.Module, target: str, loader: str, compile_kernels: KernelCompiler) -> Artifact:
    """Make the artifact of a module that went through the pipeline of GPUs, with any code for its kernels.

    Kernels bind buffers one after another, those of a launch in order, and a last one with all scalars.
    """
    main = planned_entry(module)
    signature = signature_of(main)
    rows = kernel_rows(main, module)
    facts = run_time_facts(main, module)
    program = build_host_program(module, main, split_large(module))
    kernels = checked(compile_kernels, _KERNELS, f"target '{target}'", TargetError)(module)
    code, table = pack(list(kernels), program)
    return Artifact(
        target=target, loader=loader, code=code, entry=ENTRY_NAME, inputs=signature["inputs"],
        outputs=signature["outputs"], params=signature["params"], arena_bytes=0, kernels=tuple(rows),
        metadata={**facts, **table},
    )  # fmt: skip


def kernel_code(module: ir.Module, options: CompileOptions) -> list[KernelText]:
    """Return the code of each kernel of a planned module in `options.form`. The module is consumed."""
    return kernel_texts(module, to_binaries if options.form == BINARY else _dialect)


def kernel_texts(module: ir.Module, compile_kernels: KernelCompiler) -> list[KernelText]:
    """Return the code of each kernel of a planned module for reports. The module is consumed."""
    compile_checked = checked(compile_kernels, _KERNELS, "the code of kernels", TargetError)
    launchers = kernel_launchers(module)
    split_large(module)
    codes = {kernel.name.partition("::")[0]: kernel.code for kernel in compile_checked(module)}
    return [KernelText(name, launchers.get(name, name), code) for name, code in codes.items()]


def _dialect(module: ir.Module) -> list[KernelCode]:
    return [KernelCode(name, "", f"{shader}\n".encode()) for name, shader in lower_to_spirv(module).items()]
