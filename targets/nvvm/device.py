"""The CUDA driver of this machine, if it has one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

from mirlo.runtime.errors import ArtifactError, NoDevice
from mirlo.runtime.locks import make_lock


class CudaError(ArtifactError):
    """No GPU can run the model, or the GPU failed."""

    error_code = "MIR0504"
    remedy = "See the driver's own message; the model may need more memory than the GPU has."


class NoGpu(CudaError, NoDevice):
    """This machine has no device for the model, or no driver of one."""

    error_code = "MIR0505"
    remedy = "Install the driver of NVIDIA, or compile for another target."


@cache
def driver() -> ModuleType:
    """Return the bindings of the CUDA driver, initialized."""
    try:
        from cuda.bindings import driver as bindings
    except ImportError as error:
        raise NoGpu(
            "target 'nvvm' runs through the package 'cuda-bindings', which is not installed: pip install 'mirlo[cuda]'"
        ) from error
    try:
        (status,) = bindings.cuInit(0)
    except RuntimeError as error:
        raise NoGpu(
            "this machine has no CUDA driver: install that of its NVIDIA GPU, or compile for another target "
            "(spirv for other GPUs, llvm for the CPU)"
        ) from error
    if status != bindings.CUresult.CUDA_SUCCESS:
        raise NoGpu(f"the CUDA driver does not start: {status.name}")
    result: ModuleType = bindings
    return result


def check(result: tuple[Any, ...], what: str) -> Any:
    """Return the result of a driver call; raise if it failed."""
    bindings = driver()
    status, *values = result
    if status != bindings.CUresult.CUDA_SUCCESS:
        raise CudaError(f"{what} failed: {status.name}")
    return values[0] if len(values) == 1 else tuple(values)


def gpu_count() -> int:
    """Return the number of GPUs."""
    return int(check(driver().cuDeviceGetCount(), "counting GPUs"))


class Gpu:
    """One GPU, in the primary context that the rest of the process uses too, so that memory can be shared."""

    def __init__(self, number: int) -> None:
        self.cuda = driver()
        count = gpu_count()
        if not count:
            raise NoGpu("this machine has a CUDA driver, but no GPU that it may use")
        if not 0 <= number < count:
            raise CudaError(f"there is no GPU {number}: this machine has {count}, counted from 0")
        self.number = number
        self.handle = check(self.cuda.cuDeviceGet(number), "finding the GPU")
        self.pool: object = None
        """Its memory pool: `memory.pool_of`."""
        self._context: int | None = None
        self._lock = make_lock()

    @property
    def capability(self) -> tuple[int, int]:
        """Return the compute capability."""
        kinds = self.cuda.CUdevice_attribute
        major, minor = (
            check(self.cuda.cuDeviceGetAttribute(kind, self.handle), "asking the GPU")
            for kind in (
                kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        )  # fmt: skip
        return int(major), int(minor)

    @property
    def units(self) -> int:
        """Return the number of streaming multiprocessors."""
        kind = self.cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        return int(check(self.cuda.cuDeviceGetAttribute(kind, self.handle), "asking the GPU"))

    def enter(self) -> None:
        """Make this GPU current for the calling thread."""
        with self._lock:
            if self._context is None:
                self._context = check(self.cuda.cuDevicePrimaryCtxRetain(self.handle), "opening the GPU")
        check(self.cuda.cuCtxSetCurrent(self._context), "entering the GPU's context")

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Make this GPU current within a block, and restore the previous context afterwards."""
        before = check(self.cuda.cuCtxGetCurrent(), "asking for the context")
        self.enter()
        try:
            yield
        finally:
            check(self.cuda.cuCtxSetCurrent(before), "leaving the GPU's context")


@cache
def gpu(number: int) -> Gpu:
    """Return the GPU with this number."""
    return Gpu(number)


def first_gpu() -> Gpu:
    """Return the first GPU; raise an error with instructions if there is none."""
    return gpu(0)


@cache
def capability() -> tuple[int, int] | None:
    """Return the compute capability of the first GPU; None if there is none."""
    try:
        return first_gpu().capability
    except CudaError:
        return None
