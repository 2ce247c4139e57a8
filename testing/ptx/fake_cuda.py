"""A CUDA driver over this machine's memory, for tests of the loader; the emulator executes kernels.

Work in a stream is executed only when its result is requested: what does not wait for what it needs goes wrong.
"""

from __future__ import annotations

import ctypes
from collections import defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

SUCCESS = SimpleNamespace(name="CUDA_SUCCESS")
NO_BINARY = SimpleNamespace(name="CUDA_ERROR_NO_BINARY_FOR_GPU")
NOT_READY = SimpleNamespace(name="CUDA_ERROR_NOT_READY")
Action = Callable[[], None]


class FakeStreams:
    """Streams as queues of actions, and events as places in them."""

    def __init__(self) -> None:
        self.queues: defaultdict[int, deque[Action]] = defaultdict(deque)
        self.given: defaultdict[int, int] = defaultdict(int)
        self.done: defaultdict[int, int] = defaultdict(int)

    def add(self, stream: int, action: Action) -> None:
        self.queues[stream].append(action)
        self.given[stream] += 1

    def run(self, stream: int, until: int | None = None) -> None:
        """Do what waits in a stream, up to a place in it."""
        queue = self.queues[stream]
        while queue and (until is None or self.done[stream] < until):
            action = queue.popleft()
            action()
            self.done[stream] += 1

    def run_all(self) -> None:
        for stream in list(self.queues):
            self.run(stream)


class FakeDriver:
    """The functions of `cuda.bindings.driver` that the loader calls."""

    CUresult = SimpleNamespace(
        CUDA_SUCCESS=SUCCESS, CUDA_ERROR_NOT_READY=NOT_READY, CUDA_ERROR_NO_BINARY_FOR_GPU=NO_BINARY,
        CUDA_ERROR_INVALID_IMAGE=SimpleNamespace(name="CUDA_ERROR_INVALID_IMAGE"),
        CUDA_ERROR_UNSUPPORTED_PTX_VERSION=SimpleNamespace(name="CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
    )  # fmt: skip
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)
    CUevent_record_flags = SimpleNamespace(CU_EVENT_RECORD_EXTERNAL=1)
    CUjit_option = SimpleNamespace(CU_JIT_ERROR_LOG_BUFFER=5, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES=6)
    CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR=0,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR=1,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT=2,
    )
    CUpointer_attribute = SimpleNamespace(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL=9)
    CUstream = int

    maps: Any
    """Writes tensor maps, and knows them again."""

    def __init__(self, gpus: int = 1):
        self.gpus = gpus
        self.capability = (9, 0)
        self.units = 114
        self.memory: dict[int, Any] = {}
        self.placed: dict[int, int] = {}
        """Which GPU memory is on."""
        self.context = 0
        self.streams = FakeStreams()
        self.stream_of_gpu: dict[int, int] = {}
        self.recorded: list[tuple[int, Action]] | None = None
        self.calls: list[str] = []
        self.clock = 0.0
        self.images: list[bytes] = []
        """How the modules begin that were loaded."""
        self.takes_binaries = True
        self._next = 100
        self.allowed: dict[str, int] = {}

    def __getattribute__(self, name: str) -> Any:
        member = object.__getattribute__(self, name)
        if name.startswith("cu"):
            self.calls.append(name)
        return member

    def _now(self, stream: int, action: Action) -> tuple[Any]:
        if self.recorded is None:
            self.streams.add(stream, action)
        else:
            self.recorded.append((stream, action))
        return (SUCCESS,)

    def _allocate(self, size: int) -> tuple[Any, int]:
        result = (ctypes.c_char * (size + 256))()
        address = -(-ctypes.addressof(result) // 256) * 256
        self.memory[address] = result
        self.placed[address] = self.context
        return SUCCESS, address

    # Devices and contexts: that of GPU n is n + 1, none is 0.

    def cuDeviceGetCount(self) -> tuple[Any, int]:
        return SUCCESS, self.gpus

    def cuDeviceGet(self, number: int) -> tuple[Any, int]:
        return SUCCESS, number

    def cuDeviceGetAttribute(self, kind: int, device: int) -> tuple[Any, int]:
        return SUCCESS, (*self.capability, self.units)[kind]

    def cuDeviceGetName(self, size: int, device: int) -> tuple[Any, bytes]:
        return SUCCESS, b"a stand-in"

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[Any, int]:
        return SUCCESS, device + 1

    def cuCtxSetCurrent(self, context: int) -> tuple[Any]:
        self.context = context
        return (SUCCESS,)

    def cuCtxGetCurrent(self) -> tuple[Any, int]:
        return SUCCESS, self.context

    def cuCtxSynchronize(self) -> tuple[Any]:
        self.streams.run_all()
        return (SUCCESS,)

    # Streams and events

    def cuStreamCreate(self, flags: int) -> tuple[Any, int]:
        self._next += 1
        self.stream_of_gpu[self._next] = self.context
        return SUCCESS, self._next

    def cuStreamDestroy(self, stream: int) -> tuple[Any]:
        self.streams.run(stream)
        return (SUCCESS,)

    def cuStreamSynchronize(self, stream: int) -> tuple[Any]:
        self.streams.run(stream)
        return (SUCCESS,)

    def cuStreamWaitEvent(self, stream: int, event: Any, flags: int) -> tuple[Any]:
        source, place = event["stream"], event["place"]
        return self._now(stream, lambda: self.streams.run(source, place))

    def cuEventCreate(self, flags: int) -> tuple[Any, dict[str, Any]]:
        return SUCCESS, {}

    def cuEventRecord(self, event: dict[str, Any], stream: int) -> tuple[Any]:
        self.clock += 0.25
        event.update(time=self.clock, stream=stream, place=self.streams.given[stream])
        return (SUCCESS,)

    def cuEventRecordWithFlags(self, event: dict[str, Any], stream: int, flags: int) -> tuple[Any]:
        assert flags == 1 and self.recorded is not None, "an event that is read outside of a graph is recorded in one"
        return self.cuEventRecord(event, stream)

    def cuEventQuery(self, event: dict[str, Any]) -> tuple[Any]:
        return (SUCCESS if self.streams.done[event["stream"]] >= event["place"] else NOT_READY,)

    def cuEventSynchronize(self, event: dict[str, Any]) -> tuple[Any]:
        self.streams.run(event["stream"], event["place"])
        return (SUCCESS,)

    def cuEventElapsedTime(self, first: dict[str, Any], event: dict[str, Any]) -> tuple[Any, float]:
        return SUCCESS, event["time"] - first["time"]

    def cuEventDestroy(self, event: dict[str, Any]) -> tuple[Any]:
        return (SUCCESS,)

    # Kernels

    def cuModuleLoadData(self, code: bytes) -> tuple[Any, Any]:
        self.images.append(code[:4])
        if code.startswith(b"\x7fELF"):
            return (SUCCESS, code) if self.takes_binaries else (NO_BINARY, None)
        assert code.startswith(b"//") and code.endswith(b"\0"), "PTX ends with a zero"
        return SUCCESS, code

    def cuModuleLoadDataEx(self, code: bytes, count: int, options: list[int], values: list[Any]) -> tuple[Any, bytes]:
        assert options == [5, 6] and len(values[0]) == values[1] and count == 2
        return self.cuModuleLoadData(code)

    def cuFuncLoad(self, function: str) -> tuple[Any]:
        assert self.recorded is None
        return (SUCCESS,)

    def cuModuleUnload(self, module: Any) -> tuple[Any]:
        return (SUCCESS,)

    def cuModuleGetFunction(self, module: Any, name: bytes) -> tuple[Any, str]:
        assert (name if module.startswith(b"\x7fELF") else b".entry " + name) in module
        return SUCCESS, name.decode()

    def cuFuncSetAttribute(self, function: str, attribute: int, value: int) -> tuple[Any]:
        assert attribute == 8 and 0 < value <= 227 * 1024
        self.allowed[function] = value
        return (SUCCESS,)

    def cuGetProcAddress(self, name: bytes, version: int, flags: int) -> tuple[Any, int, int]:
        assert name == b"cuTensorMapEncodeTiled" and version == 12000
        return SUCCESS, self.maps.function, 0

    def cuLaunchKernel(self, function: str, *rest: Any) -> tuple[Any]:
        *sizes, shared, stream, (values, kinds), extra = rest
        assert extra == 0 and len(sizes) == 6
        assert shared == self.allowed.get(function, 0), "more shared memory is asked for than the kernel may have"
        assert self.stream_of_gpu[stream] == self.context, "the stream is that of another GPU"
        pairs = list(zip(values, kinds, strict=True))
        assert all(value % 16 == 0 for value, kind in pairs if kind is ctypes.c_void_p), "kernels count on alignment"
        assert 0 not in sizes, "a launch of nothing is an error"
        # Maps are copied when a kernel is launched: what is written over them later is not seen.
        values = [self.maps.given(value) if kind is None else value for value, kind in pairs]
        return self._now(stream, self._work(function, sizes, list(zip(values, kinds, strict=True)), shared))

    def _work(self, function: str, sizes: list[int], parameters: list[tuple[Any, Any]], shared: int) -> Action:
        """Return what executes a kernel."""
        raise NotImplementedError

    def cuStreamBeginCapture(self, stream: int, mode: int) -> tuple[Any]:
        self.recorded = []
        return (SUCCESS,)

    def cuStreamEndCapture(self, stream: int) -> tuple[Any, Any]:
        graph, self.recorded = self.recorded, None
        assert graph is not None and all(used == stream for used, _ in graph)
        return SUCCESS, [action for _, action in graph]

    def cuGraphInstantiate(self, graph: Any, flags: int) -> tuple[Any, Any]:
        return SUCCESS, graph

    def cuGraphLaunch(self, graph: Any, stream: int) -> tuple[Any]:
        for action in graph:
            self._now(stream, action)
        return (SUCCESS,)

    def cuGraphDestroy(self, graph: Any) -> tuple[Any]:
        return (SUCCESS,)

    cuGraphExecDestroy = cuGraphDestroy

    # Memory

    def cuMemAlloc(self, size: int) -> tuple[Any, int]:
        return self._allocate(size)

    def cuMemHostAlloc(self, size: int, flags: int) -> tuple[Any, int]:
        return self._allocate(size)

    def cuMemFree(self, address: int) -> tuple[Any]:
        # The driver waits for all that goes on before it frees memory.
        self.streams.run_all()
        del self.memory[address]
        return (SUCCESS,)

    cuMemFreeHost = cuMemFree

    def cuPointerGetAttribute(self, attribute: int, address: int) -> tuple[Any, int]:
        start = max(base for base in self.placed if base <= address)
        return SUCCESS, self.placed[start] - 1

    def cuMemcpyHtoD(self, target: int, source: int, size: int) -> tuple[Any]:
        ctypes.memmove(target, source, size)
        return (SUCCESS,)

    cuMemcpyDtoH = cuMemcpyHtoD

    def cuMemcpyHtoDAsync(self, target: int, source: int, size: int, stream: int) -> tuple[Any]:
        def copy() -> None:
            ctypes.memmove(target, source, size)

        return self._now(stream, copy)

    cuMemcpyDtoHAsync = cuMemcpyDtoDAsync = cuMemcpyHtoDAsync
