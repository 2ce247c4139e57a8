"""The CUDA driver of this machine, if it has one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
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


def gpu_count() -> int:
    """How many GPUs the driver has."""
    return int(check(driver().cuDeviceGetCount(), "counting GPUs"))


class Gpu:
    """One GPU, in the context that everything else in the process uses as well, so that memory can be shared."""

    def __init__(self, number: int) -> None:
        self.cuda = driver()
        count = gpu_count()
        if not count:
            raise CudaError("this machine has a CUDA driver, but no GPU that it may use")
        if not 0 <= number < count:
            raise CudaError(f"there is no GPU {number}: this machine has {count}, counted from 0")
        self.number = number
        self.handle = check(self.cuda.cuDeviceGet(number), "finding the GPU")
        self.pool: Any = None
        """Of its memory: `memory.pool_of`."""
        self._context: Any = None
        self._lock = threading.RLock()

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability."""
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
        """Streaming multiprocessors."""
        kind = self.cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        return int(check(self.cuda.cuDeviceGetAttribute(kind, self.handle), "asking the GPU"))

    def enter(self) -> None:
        """Make it the GPU that calls of this thread are for."""
        with self._lock:
            if self._context is None:
                self._context = check(self.cuda.cuDevicePrimaryCtxRetain(self.handle), "opening the GPU")
        check(self.cuda.cuCtxSetCurrent(self._context), "entering the GPU's context")

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The same for a block: other libraries find the context that they left."""
        before = check(self.cuda.cuCtxGetCurrent(), "asking for the context")
        self.enter()
        try:
            yield
        finally:
            check(self.cuda.cuCtxSetCurrent(before), "leaving the GPU's context")


@cache
def gpu(number: int) -> Gpu:
    """The GPU of this number."""
    return Gpu(number)


def first_gpu() -> Gpu:
    """The first GPU; an error that says what to do where there is none."""
    return gpu(0)


@cache
def capability() -> tuple[int, int] | None:
    """The compute capability of the first GPU; None if there is none."""
    try:
        return first_gpu().capability
    except CudaError:
        return None
