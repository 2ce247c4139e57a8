"""Loading of kernels: machine code if it fits the GPU, else PTX that the driver assembles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.runtime.artifact import Artifact
from mirlo.targets.nvvm.chips import find_chip
from mirlo.targets.nvvm.device import CudaError, Gpu, check

if TYPE_CHECKING:
    from mirlo.targets.gpu.device_layout import KernelEntry

LOG_BYTES = 4096
"""Bytes of the driver's assembler log."""


def check_chip(artifact: Artifact, gpu: Gpu) -> None:
    """Raise an error if the GPU cannot run code for the model's chip."""
    chip, capability = find_chip(artifact.metadata["chip"]), gpu.capability
    bound = chip.name.endswith("a")
    if capability < chip.version or (bound and capability != chip.version):
        which = f"{capability[0]}.{capability[1]}"
        raise CudaError(
            f"the model was compiled for {chip.name}, this GPU has the compute capability {which}: compile it again"
        )


def load_kernels(artifact: Artifact, gpu: Gpu, held: list[int]) -> dict[str, str]:
    """Return the kernels of a model by name; `held` keeps their modules loaded."""
    cuda = gpu.cuda
    modules: dict[int, int] = {}
    functions = {}
    for name, kernel in artifact.metadata["kernels"].items():
        at, size = kernel["code"]
        if at not in modules:
            binary = _load_binary(artifact, gpu, kernel)
            if binary is None:
                binary = _load_ptx(artifact, gpu, artifact.code[at : at + size] + b"\0")
            modules[at] = binary
            held.append(modules[at])
        function = cuda.cuModuleGetFunction(modules[at], kernel["entry"].encode())
        functions[name] = check(function, f"finding the kernel '{name}'")
        # Otherwise the driver may load lazily at the first launch, during graph capture.
        check(cuda.cuFuncLoad(functions[name]), f"loading the kernel '{name}'")
        if "shared" in kernel:
            most = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            check(cuda.cuFuncSetAttribute(functions[name], most, kernel["shared"]), f"giving '{name}' memory")
    return functions


def _load_ptx(artifact: Artifact, gpu: Gpu, code: bytes) -> int:
    """Load a module of zero-terminated PTX; the error contains the log of the driver's assembler."""
    cuda, error_log = gpu.cuda, bytearray(LOG_BYTES)
    options = cuda.CUjit_option
    asked = [options.CU_JIT_ERROR_LOG_BUFFER, options.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    outcome = cuda.cuModuleLoadDataEx(code, len(asked), asked, [error_log, LOG_BYTES])
    if outcome[0] == cuda.CUresult.CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
        major, minor = divmod(find_chip(artifact.metadata["chip"]).ptx, 10)
        raise CudaError(
            f"the CUDA driver does not know PTX {major}.{minor}: install a newer one, or compile with cubin=true"
        )
    log = error_log.split(b"\0", 1)[0].decode(errors="replace").strip()
    module: int = check(outcome, f"loading kernels ({log})" if log else "loading kernels")
    return module


def _load_binary(artifact: Artifact, gpu: Gpu, kernel: KernelEntry) -> int | None:
    """Load a module of machine code; return None if this GPU cannot run it, and PTX must be used."""
    if "binary" not in kernel or not find_chip(artifact.metadata["chip"]).runs_on(gpu.capability):
        return None
    cuda = gpu.cuda
    at, size = kernel["binary"]
    module = cuda.cuModuleLoadData(artifact.code[at : at + size])
    # An older driver may not know the output of a newer assembler.
    unknown = (cuda.CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU, cuda.CUresult.CUDA_ERROR_INVALID_IMAGE)
    return None if module[0] in unknown else check(module, "loading kernels")
