"""The loader `cuda`: a compiled model on an NVIDIA GPU, its whole inference one graph that is launched again.

PTX is finished by the driver when the model is loaded. Weights and constants are placed once. The first call captures
what an inference does, copies from and to pinned memory included, and every call launches that.
"""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from typing import Any

from mirlo.runtime.artifact import Artifact
from mirlo.runtime.loaders import LoadedCode
from mirlo.targets.gpu.places import (
    Region,
    WhenCalled,
    address_of,
    constants_of,
    lay_out,
    params_of,
    pointers,
    tensors_of,
)
from mirlo.targets.nvvm.chips import find_chip
from mirlo.targets.nvvm.device import CudaError, capability, check, driver, first_gpu


def load(artifact: Artifact) -> LoadedCode:
    """Make an artifact for CUDA callable."""
    entry = WhenCalled(lambda: Model(artifact))
    return LoadedCode(entry, keep=entry)


class Model:
    """A model on the first GPU."""

    def __init__(self, artifact: Artifact):
        self.artifact = artifact
        self.lock = threading.RLock()
        self._memories: list[int] = []
        self._pinned: list[int] = []
        cuda = driver()
        device = first_gpu()
        self._check_chip()
        # The context that everything else in the process uses as well, so that memory can be shared.
        self._context = check(cuda.cuDevicePrimaryCtxRetain(device), "opening the GPU")
        with self.lock:
            self._enter()
            self._stream = check(cuda.cuStreamCreate(1), "making a stream")
            self._functions = self._load_kernels()
            program = artifact.metadata["program"]
            self.steps = program["steps"]
            self.regions, total = tensors_of(artifact)
            self._arena = self._allocate(program["arena"])
            self._tensors = self._allocate(total)
            self._staging = int(check(cuda.cuMemHostAlloc(total, 0), "reserving pinned memory"))
            self._pinned.append(self._staging)
            self.constants, self._constants = self._upload(constants_of(artifact))
        self.params: list[Region] = []
        self._params: int | None = None
        self._graph: Any = None
        weakref.finalize(self, _release, self._context, self._memories, self._pinned).atexit = False

    def _check_chip(self) -> None:
        chip, found = find_chip(self.artifact.metadata["chip"]), capability()
        if found is None:
            raise CudaError("the GPU does not say what it is capable of")
        bound = chip.name.endswith("a")
        if found < chip.version or (bound and found != chip.version):
            which = f"{found[0]}.{found[1]}"
            raise CudaError(
                f"the model was compiled for {chip.name}, this GPU has the compute capability {which}: compile it again"
            )

    def _enter(self) -> None:
        check(driver().cuCtxSetCurrent(self._context), "entering the GPU's context")

    def _load_kernels(self) -> dict[str, Any]:
        cuda = driver()
        modules: dict[tuple[int, int], Any] = {}
        functions = {}
        for name, kernel in self.artifact.metadata["kernels"].items():
            at, size = kernel["code"]
            if (at, size) not in modules:
                code = self.artifact.code[at : at + size] + b"\0"
                modules[at, size] = check(cuda.cuModuleLoadData(code), "loading kernels")
            found = cuda.cuModuleGetFunction(modules[at, size], kernel["entry"].encode())
            functions[name] = check(found, f"finding the kernel '{name}'")
        return functions

    # Memory

    def _allocate(self, size: int) -> int:
        made = int(check(driver().cuMemAlloc(max(size, 4)), f"reserving {size} bytes of the GPU's memory"))
        self._memories.append(made)
        return made

    def _upload(self, data: list[Any]) -> tuple[list[Region], int]:
        regions, total = lay_out([len(part) for part in data])
        base = self._allocate(total)
        for region, part in zip(regions, data, strict=True):
            if region.size:
                copied = driver().cuMemcpyHtoD(base + region.offset, address_of(part), region.size)
                check(copied, "copying to the GPU")
        # Copies from memory that is not pinned may still be under way, which the model's own stream does not wait for.
        check(driver().cuCtxSynchronize(), "copying to the GPU")
        return regions, base

    def _place(self, where: list[Any]) -> int:
        """The address of a range of the program."""
        space, index, offset, _ = where
        if space == "arena":
            return self._arena + offset
        if space == "tensor":
            return self._tensors + self.regions[index].offset + offset
        if space == "param":
            assert self._params is not None
            return self._params + self.params[index].offset + offset
        return self._constants + self.constants[index].offset + offset

    # Calls

    def call(self, tensors: Any, params: Any, arena: Any, stamps: Any) -> None:
        """The entry function: arrays of addresses, as compiled code for the CPU has it."""
        cuda = driver()
        inputs = len(self.artifact.inputs)
        tensors = pointers(tensors, len(self.regions))
        with self.lock:
            self._enter()
            if self._params is None:
                self.params, self._params = self._upload(params_of(self.artifact, params))
            for i, region in enumerate(self.regions[:inputs]):
                ctypes.memmove(self._staging + region.offset, tensors[i], region.size)
            if stamps is None:
                if self._graph is None:
                    self._graph = self._capture()
                check(cuda.cuGraphLaunch(self._graph, self._stream), "starting the model")
                check(cuda.cuStreamSynchronize(self._stream), "running the model")
            else:
                self._profile(stamps)
            for i, region in enumerate(self.regions[inputs:], inputs):
                ctypes.memmove(tensors[i], self._staging + region.offset, region.size)

    def _capture(self) -> Any:
        cuda = driver()
        mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        check(cuda.cuStreamBeginCapture(self._stream, mode), "recording the model")
        self._record(lambda row: None)
        graph = check(cuda.cuStreamEndCapture(self._stream), "recording the model")
        return check(cuda.cuGraphInstantiate(graph, 0), "preparing the model")

    def _record(self, before_row: Any) -> None:
        """Everything that an inference does, on the stream."""
        cuda = driver()
        inputs = len(self.artifact.inputs)
        for region in self.regions[:inputs]:
            source, target = self._staging + region.offset, self._tensors + region.offset
            if region.size:
                check(cuda.cuMemcpyHtoDAsync(target, source, region.size, self._stream), "copying an input")
        row = -1
        for step in self.steps:
            while row < step["row"]:
                row += 1
                before_row(row)
            self._step(step)
        while row < len(self.artifact.kernels):
            row += 1
            before_row(row)
        for region in self.regions[inputs:]:
            target, source = self._staging + region.offset, self._tensors + region.offset
            if region.size:
                check(cuda.cuMemcpyDtoHAsync(target, source, region.size, self._stream), "copying an output")

    def _step(self, step: dict[str, Any]) -> None:
        cuda = driver()
        if "copy" in step:
            source, target = (self._place(where) for where in step["copy"])
            size = step["copy"][0][3]
            check(cuda.cuMemcpyDtoDAsync(target, source, size, self._stream), "copying a tensor")
            return
        addresses = tuple(self._place(where) for where in step["arguments"])
        given = (addresses, (ctypes.c_void_p,) * len(addresses))
        started = cuda.cuLaunchKernel(
            self._functions[step["kernel"]], *step["grid"], *step["block"], 0, self._stream, given, 0
        )
        check(started, f"starting the kernel '{step['kernel']}'")

    def _profile(self, stamps: int) -> None:
        """One inference with an event before each row; stamps are nanoseconds of this machine's clock."""
        cuda = driver()
        events: list[Any] = []

        def note(row: int) -> None:
            event = check(cuda.cuEventCreate(0), "making an event")
            check(cuda.cuEventRecord(event, self._stream), "recording an event")
            events.append(event)

        start = time.perf_counter_ns()
        self._record(note)
        check(cuda.cuStreamSynchronize(self._stream), "running the model")
        times = [check(cuda.cuEventElapsedTime(events[0], event), "reading an event") for event in events]
        numbers = [start + int(1e6 * milliseconds) for milliseconds in times]
        ctypes.memmove(stamps, (ctypes.c_uint64 * len(numbers))(*numbers), 8 * len(numbers))
        for event in events:
            check(cuda.cuEventDestroy(event), "freeing an event")


def _release(context: Any, memories: list[int], pinned: list[int]) -> None:
    """Give a model's memory back; what fails here has failed before, where it was told."""
    cuda = driver()
    cuda.cuCtxSetCurrent(context)
    for address in memories:
        cuda.cuMemFree(address)
    for address in pinned:
        cuda.cuMemFreeHost(address)
