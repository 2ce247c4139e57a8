"""The CUDA driver of this machine, if it has one."""

from __future__ import annotations

from functools import cache
from typing import Any

from mirlo.runtime.errors import ArtifactError


class CudaError(ArtifactError):
    """There is no GPU that can run the model, or it failed."""


@cache
def driver() -> Any:
    """The bindings of the CUDA driver, initialized."""
    try:
        from cuda.bindings import driver as bindings
    except ImportError as error:
        raise CudaError(
            "target 'nvvm' runs through the package 'cuda-bindings', which is not installed: pip install 'mirlo[cuda]'"
        ) from error
    try:
        (status,) = bindings.cuInit(0)
    except RuntimeError as error:
        raise CudaError(
            "this machine has no CUDA driver: install that of its NVIDIA GPU, or compile for another target "
            "(spirv for other GPUs, llvm for the CPU)"
        ) from error
    if status != bindings.CUresult.CUDA_SUCCESS:
        raise CudaError(f"the CUDA driver does not start: {status.name}")
    return bindings


def check(result: tuple[Any, ...], what: str) -> Any:
    """What a call of the driver gives; an error where it failed."""
    bindings = driver()
    status, *values = result
    if status != bindings.CUresult.CUDA_SUCCESS:
        raise CudaError(f"{what} failed: {status.name}")
    return values[0] if len(values) == 1 else tuple(values)


def first_gpu() -> Any:
    """The first GPU; an error that says what to do where there is none."""
    bindings = driver()
    if not check(bindings.cuDeviceGetCount(), "counting GPUs"):
        raise CudaError("this machine has a CUDA driver, but no GPU that it may use")
    return check(bindings.cuDeviceGet(0), "finding the GPU")


@cache
def capability() -> tuple[int, int] | None:
    """The compute capability of the first GPU; None if there is none."""
    try:
        bindings, device = driver(), first_gpu()
        kinds = bindings.CUdevice_attribute
        major, minor = (
            check(bindings.cuDeviceGetAttribute(kind, device), "asking the GPU")
            for kind in (
                kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        )  # fmt: skip
    except CudaError:
        return None
    return major, minor
