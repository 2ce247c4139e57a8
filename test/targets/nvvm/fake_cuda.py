"""A CUDA driver made of this machine's memory, whose kernels the interpreter runs: for the loader's side of things."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from simt import run_kernel

SUCCESS = SimpleNamespace(name="CUDA_SUCCESS")
DTYPES = {"f32": np.float32, "f16": np.float16, "i64": np.int64, "i8": np.int8}


class FakeDriver:
    """The functions of `cuda.bindings.driver` that the loader calls; `kernels` has the `gpu.func` of each name."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=SUCCESS)
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=2)

    def __init__(self, kernels: dict[str, Any]):
        self.kernels = kernels
        self.memory: dict[int, Any] = {}
        self.recorded: list[Callable[[], None]] | None = None
        self.calls: list[str] = []
        self.clock = 0.0

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if name.startswith("cu"):
            self.calls.append(name)
        return found

    def _now(self, action: Callable[[], None]) -> tuple[Any]:
        if self.recorded is None:
            action()
        else:
            self.recorded.append(action)
        return (SUCCESS,)

    def _allocate(self, size: int) -> tuple[Any, int]:
        made = (ctypes.c_char * size)()
        address = ctypes.addressof(made)
        self.memory[address] = made
        return SUCCESS, address

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[Any, str]:
        return SUCCESS, "context"

    def cuCtxSetCurrent(self, context: Any) -> tuple[Any]:
        return (SUCCESS,)

    def cuCtxSynchronize(self) -> tuple[Any]:
        return (SUCCESS,)

    def cuStreamCreate(self, flags: int) -> tuple[Any, str]:
        return SUCCESS, "stream"

    def cuModuleLoadData(self, code: bytes) -> tuple[Any, bytes]:
        assert code.startswith(b"//") and code.endswith(b"\0"), "PTX ends with a zero"
        return SUCCESS, code

    def cuModuleGetFunction(self, module: bytes, name: bytes) -> tuple[Any, str]:
        assert b".entry " + name in module
        return SUCCESS, name.decode()

    def cuMemAlloc(self, size: int) -> tuple[Any, int]:
        return self._allocate(size)

    def cuMemHostAlloc(self, size: int, flags: int) -> tuple[Any, int]:
        return self._allocate(size)

    def cuMemFree(self, address: int) -> tuple[Any]:
        del self.memory[address]
        return (SUCCESS,)

    cuMemFreeHost = cuMemFree

    def cuMemcpyHtoD(self, target: int, source: int, size: int) -> tuple[Any]:
        ctypes.memmove(target, source, size)
        return (SUCCESS,)

    def cuMemcpyHtoDAsync(self, target: int, source: int, size: int, stream: str) -> tuple[Any]:
        return self._now(lambda: ctypes.memmove(target, source, size))

    cuMemcpyDtoHAsync = cuMemcpyDtoDAsync = cuMemcpyHtoDAsync

    def cuLaunchKernel(self, function: str, *rest: Any) -> tuple[Any]:
        *sizes, shared, stream, (values, kinds), extra = rest
        assert (shared, stream, extra) == (0, "stream", 0) and len(sizes) == 6
        assert all(kind is ctypes.c_void_p for kind in kinds) and sizes[4:] == [1, 1]
        kernel = self.kernels[function]

        def run() -> None:
            arrays = [
                _array(address, argument.type)
                for address, argument in zip(values, kernel.regions[0].blocks[0].arguments, strict=True)
            ]
            run_kernel(kernel, (sizes[0], sizes[1], sizes[2]), sizes[3], arrays)

        return self._now(run)

    def cuStreamBeginCapture(self, stream: str, mode: int) -> tuple[Any]:
        self.recorded = []
        return (SUCCESS,)

    def cuStreamEndCapture(self, stream: str) -> tuple[Any, Any]:
        graph, self.recorded = self.recorded, None
        return SUCCESS, graph

    def cuGraphInstantiate(self, graph: Any, flags: int) -> tuple[Any, Any]:
        return SUCCESS, graph

    def cuGraphLaunch(self, graph: Any, stream: str) -> tuple[Any]:
        for action in graph:
            action()
        return (SUCCESS,)

    def cuStreamSynchronize(self, stream: str) -> tuple[Any]:
        return (SUCCESS,)

    def cuEventCreate(self, flags: int) -> tuple[Any, dict[str, float]]:
        return SUCCESS, {}

    def cuEventRecord(self, event: dict[str, float], stream: str) -> tuple[Any]:
        self.clock += 0.25
        event["time"] = self.clock
        return (SUCCESS,)

    def cuEventElapsedTime(self, first: dict[str, float], event: dict[str, float]) -> tuple[Any, float]:
        return SUCCESS, event["time"] - first["time"]

    def cuEventDestroy(self, event: dict[str, float]) -> tuple[Any]:
        return (SUCCESS,)


def _array(address: int, kind: Any) -> np.ndarray:
    dtype = np.dtype(DTYPES[str(kind.element_type)])
    count = int(np.prod(kind.shape, dtype=np.int64))
    held = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(held, dtype)
