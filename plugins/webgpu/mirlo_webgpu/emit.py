"""Emission of an artifact: kernels in WGSL and the host program, for devices and browsers alike."""

from __future__ import annotations

from mirlo.extend.gpu import SCALARS, WEBGPU, KernelCode, emit_kernels, kernel_texts, lower_to_spirv
from mirlo.extend.ops import ir
from mirlo.extend.runtime import ModelArtifact
from mirlo.extend.target import KernelText, PassError
from mirlo_webgpu import MAX_SHARED
from mirlo_webgpu.wgsl import ENTRY, print_wgsl


def emit(module: ir.Module) -> ModelArtifact:
    """Make the artifact of a module that went through the target's pipeline. The module is consumed."""
    return emit_kernels(module, "webgpu", "webgpu", _kernels)


def kernel_code(module: ir.Module) -> list[KernelText]:
    """Return each kernel of a planned module as WGSL. The module is consumed."""
    return kernel_texts(module, _kernels)


def _kernels(module: ir.Module) -> list[KernelCode]:
    return [_kernel(name, shader) for name, shader in lower_to_spirv(module, WEBGPU).items()]


def _kernel(name: str, shader: ir.Operation) -> KernelCode:
    (function,) = (op.operation for op in shader.regions[0].blocks[0].operations if op.operation.name == "spirv.func")
    kernel = print_wgsl(shader, reads_scalars=SCALARS in function.attributes)
    if kernel.shared > MAX_SHARED:
        raise PassError(
            f"the threads of a block of '{name}' share {kernel.shared} bytes, WebGPU has {MAX_SHARED}",
            function.location,
        )
    own = str(ir.StringAttr(function.attributes["sym_name"]).value)
    return KernelCode(f"{name}::{own}", ENTRY, kernel.text.encode(), shared=kernel.shared)
