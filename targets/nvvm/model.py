"""A model on a GPU: its weights, its memory, and the steps of a call.

The driver assembles PTX when the model is placed; weights and constants are uploaded once. The work of a call is
recorded as a graph for the addresses of its tensors and launched again when they recur. A caller's device arrays are
used in place.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from mirlo.runtime.artifact import Artifact
from mirlo.runtime.device_array import DeviceView
from mirlo.runtime.locks import make_lock
from mirlo.runtime.on_device import Given
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.commands import Argument, Step, StepRange
from mirlo.targets.gpu.device_layout import Pointers, Region, address_of, constants_of, lay_out, params_of, pointers
from mirlo.targets.gpu.frames import CallFrame, CallRecord, Frames
from mirlo.targets.gpu.functions import PackedFunctionTable
from mirlo.targets.nvvm.device import Gpu, check
from mirlo.targets.nvvm.device_functions import DeviceFunctionFailed, functions_on_gpu, tensor_on_gpu, working_on
from mirlo.targets.nvvm.graphs import Graphs
from mirlo.targets.nvvm.loading import check_chip, load_kernels
from mirlo.targets.nvvm.maps import Encoded, encode
from mirlo.targets.nvvm.memory import Event, MemoryBlock, Written, pool_of, written_block
from mirlo.targets.nvvm.model_resources import ModelResources
from mirlo.targets.nvvm.rows import ProfileEvents

KINDS = {tuple: ctypes.c_void_p, dict: None, int: ctypes.c_int64}
"""Argument types for the driver: of a range, a tensor map, a number."""
VECTOR = 16
"""Alignment of tensors that kernels assume, in bytes."""


@dataclass(frozen=True)
class CallMemory:
    """Memory for the sizes of a call."""

    arena: int
    """Addresses: scratch memory; device copies of host tensors; pinned host memory for these."""
    tensors: int
    staging: int
    arena_bytes: int
    tensor_bytes: int


Interpreter = Callable[
    ["CudaModel", Sequence[int], CallRecord, Pointers, ProfileEvents | None], dict[int, tuple[MemoryBlock, int]]
]
"""Run a call in which the host decides (`decisions.run`): model, tensor addresses, call record, weights, profile
rows; return the outputs of data-dependent size."""


class CudaModel:
    """A model on one GPU."""

    def __init__(self, artifact: Artifact, gpu: Gpu, interpret: Interpreter):
        self._interpret = interpret
        self.artifact = artifact
        self.gpu = gpu
        self.lock = make_lock()
        check_chip(artifact, gpu)
        with self.lock, gpu.entered():
            self._held = ModelResources(gpu)
            self.stream = self._held.stream
            self._functions = load_kernels(artifact, gpu, self._held.modules)
            self.constants, self._constants = self._upload(constants_of(artifact))
        self.params: list[Region] = []
        self._params: int | None = None
        self.frames = Frames(artifact, functions_on_gpu(artifact))
        self._libraries: PackedFunctionTable | None = None
        self.frame: CallFrame
        # Depends on the sizes of a call, and grows on demand.
        self._room = CallMemory(0, 0, 0, 0, 0)
        self.late: dict[int, int] = {}
        self._staged: Event | None = None
        self._pending: deque[tuple[Event, object]] = deque()

    # Memory

    def _upload(self, data: Sequence[bytes | ctypes.Array[ctypes.c_char]]) -> tuple[list[Region], int]:
        regions, total = lay_out([len(part) for part in data])
        base = self._held.allocate(total)
        for region, part in zip(regions, data, strict=True):
            if region.size:
                copied = self.gpu.cuda.cuMemcpyHtoD(base + region.offset, address_of(part), region.size)
                check(copied, "copying to the GPU")
        # Copies from pageable memory may still be in flight, and the model's own stream does not wait for them.
        check(self.gpu.cuda.cuCtxSynchronize(), "copying to the GPU")
        return regions, base

    def _prepare(self, record: CallRecord, params: Pointers, copies: bool = True) -> None:
        """Upload the weights once, and allocate memory for the sizes of a call."""
        if self._params is None:
            self.params, self._params = self._upload(params_of(self.artifact, params))
            self._libraries = PackedFunctionTable(self.artifact, params)
        self.frame = self.frames.of(record)
        had = self._room
        # Calls whose tensors all stay in place need no memory for copies.
        total = self.frame.total if copies else 0
        if self.frame.arena <= had.arena_bytes and total <= had.tensor_bytes:
            return
        if had.arena:
            # Recorded graphs contain addresses of memory that is freed here.
            check(self.gpu.cuda.cuStreamSynchronize(self.stream), "running the model")
            self._held.graphs.clear()
            self._held.free(had.arena, had.tensors, pinned=had.staging)
        arena, total = max(self.frame.arena, had.arena_bytes), max(total, had.tensor_bytes)
        allocate = self._held.allocate
        self._room = CallMemory(allocate(arena), allocate(total), self._held.pin(total), arena, total)

    def _own(self, number: int) -> int:
        """Return the device copy of a tensor that is on the host or misaligned."""
        return self._room.tensors + self.frame.regions[number].offset

    def staged(self, number: int) -> int:
        """Return the pinned memory that the GPU copies such a tensor from or to."""
        return self._room.staging + self.frame.regions[number].offset

    def place(self, where: StepRange, tensors: Sequence[int]) -> int:
        """Return the address of a range of the program."""
        space, index, offset, _ = where
        if space == "arena":
            return self._room.arena + offset
        if space == "tensor":
            return tensors[index] + offset
        if space == "late":
            return self.late[index] + offset
        if space == "param":
            assert self._params is not None
            return self._params + self.params[index].offset + offset
        return self._constants + self.constants[index].offset + offset

    # Calls with tensors of the CPU

    def call(self, tensors: Pointers | None, params: Pointers | None, arena: int, stamps: int | None) -> None:
        """Run the entry function on arrays of addresses, with the signature of compiled CPU code."""
        if tensors is None or params is None:
            self.frames.measure(arena)
            return
        inputs, outputs = len(self.artifact.inputs), len(self.artifact.outputs)
        *addresses, words = (address or 0 for address in pointers(tensors, inputs + outputs + 1))
        record = self.frames.record(words)
        with self.lock, self.gpu.entered(), self._noting(record):
            self._prepare(record, params)
            self._wait_for_staging()
            for i, region in enumerate(self.frame.regions[:inputs]):
                ctypes.memmove(self.staged(i), addresses[i], region.size)
            own = tuple(self._own(i) for i in range(inputs + outputs))
            if stamps is not None:
                self._profile(own, record, params, stamps)
            elif self.frame.steps is None:
                self._record(own, record, params)
            else:
                # Record the first sizes immediately: most models have no others. Libraries may not initialize during
                # capture.
                key = ("copied", self.frame.key, own)
                first = not self._held.graphs.made and not self.frames.on_device
                self._held.graphs.launch(key, self.stream, lambda: self._record(own, record, params), at_once=first)
            check(self.gpu.cuda.cuStreamSynchronize(self.stream), "running the model")
            for i, region in enumerate(self.frame.regions[inputs:], inputs):
                ctypes.memmove(addresses[i], self.staged(i), region.size)

    @contextmanager
    def _noting(self, record: CallRecord) -> Iterator[None]:
        """Record a library's error in the call record; the caller raises it."""
        try:
            yield
        except DeviceFunctionFailed as failed:
            check(self.gpu.cuda.cuStreamSynchronize(self.stream), "running the model")
            record[0], record[1] = 1 + self.artifact.packed.index(failed.name), failed.code

    def _wait_for_staging(self) -> None:
        """Wait until the inputs of the last call are copied; the call itself may still run."""
        if self._staged is not None:
            self._staged.wait()
            self._staged = None

    def _record(
        self, tensors: Sequence[int], record: CallRecord, params: Pointers, rows: ProfileEvents | None = None
    ) -> None:
        """Enqueue all work of a call."""
        inputs = len(self.artifact.inputs)
        for number in range(inputs):
            self._copy_in(number)
        late = self._steps(tensors, record, params, rows)
        for number, region in enumerate(self.frame.regions[inputs:], inputs):
            if region.size:
                target = self.staged(number)
                copied = self.gpu.cuda.cuMemcpyDtoHAsync(target, self._own(number), region.size, self.stream)
                check(copied, "copying an output")
        for number, (block, size) in late.items():
            target = self.frames.allocate_output(record, number, size)
            if target and size:
                check(self.gpu.cuda.cuMemcpyDtoH(target, block.address, size), "copying an output")
            pool_of(self.gpu).release(block)

    def _copy_in(self, number: int) -> None:
        region = self.frame.regions[number]
        if region.size:
            copied = self.gpu.cuda.cuMemcpyHtoDAsync(self._own(number), self.staged(number), region.size, self.stream)
            check(copied, "copying an input")

    def _steps(
        self, tensors: Sequence[int], record: CallRecord, params: Pointers, rows: ProfileEvents | None = None
    ) -> dict[int, tuple[MemoryBlock, int]]:
        """Enqueue launches and copies; return blocks and sizes of outputs of data-dependent size."""
        if self.frame.steps is None:
            return self._interpret(self, tensors, record, params, rows)
        for step in self.frame.steps:
            if rows is not None:
                rows.reach(step["row"])
            self.step(step, tensors)
        if rows is not None:
            rows.reach(len(self.artifact.kernels))
        return {}

    def _started(self, tensors: Sequence[int], record: CallRecord, params: Pointers) -> None:
        self._steps(tensors, record, params)

    def step(self, step: Step, tensors: Sequence[int]) -> None:
        """Enqueue a launch, a copy or a library call."""
        if "call" in step:
            self._call_library(step, tensors)
            return
        if "copy" in step:
            source, target = (self.place(where, tensors) for where in step["copy"])
            self.copy(target, source, step["copy"][0][3])
            return
        arguments = step["arguments"]
        values = tuple(self._argument(argument, tensors) for argument in arguments)
        parameters = (values, tuple(KINDS[type(argument)] for argument in arguments))
        name = step["kernel"]
        asked = self.artifact.metadata["kernels"][name].get("shared", 0)
        started = self.gpu.cuda.cuLaunchKernel(
            self._functions[name], *step["grid"], *step["block"], asked, self.stream, parameters, 0
        )
        check(started, f"starting the kernel '{name}'")

    def _call_library(self, step: Step, tensors: Sequence[int]) -> None:
        assert self._libraries is not None
        operands = [
            tensor_on_gpu(self.place(where, tensors), self.gpu.number, dtype, shape)
            for where, (dtype, shape) in zip(step["ranges"], step["types"], strict=True)
        ]
        with working_on(self.gpu, int(self.stream)):
            code = self._libraries.start(step["call"], operands)
        if code:
            raise DeviceFunctionFailed(step["call"], code)

    def _argument(self, argument: Argument, tensors: Sequence[int]) -> int | Encoded:
        """Return a kernel argument: the address of a range, a tensor map, or a number."""
        if isinstance(argument, dict):
            return encode(self.gpu.cuda, argument, self.place(argument["map"], tensors))
        return self.place(argument, tensors) if isinstance(argument, tuple) else argument

    def copy(self, target: int, source: int, size: int) -> None:
        """Enqueue a copy on the GPU."""
        if size > 0:
            check(self.gpu.cuda.cuMemcpyDtoDAsync(target, source, size, self.stream), "copying a tensor")

    def copied_tensors(self) -> tuple[int, ...] | None:
        """Return the addresses of the last call's copied tensors; None if the host decides."""
        if self._params is None or self.frame.steps is None:
            return None
        return tuple(self._own(i) for i in range(len(self.frame.regions)))

    def start_steps(self, tensors: Sequence[int]) -> None:
        """Enqueue the work of a call without host decisions."""
        for step in self.frame.steps or ():
            self.step(step, tensors)

    def _profile(self, tensors: Sequence[int], record: CallRecord, params: Pointers, stamps: int) -> None:
        """Run one inference with an event before each row; time stamps are nanoseconds of the host's clock.

        Where the host decides nothing it is a graph, so that no kernel waits for the host.
        """
        in_graph = self.frame.steps is not None
        rows = ProfileEvents(self.gpu, self.stream, in_graph)
        graphs = Graphs(self.gpu)
        try:
            if in_graph:
                # Libraries may not initialize during capture, and the first launch of a graph takes longer.
                self._record(tensors, record, params)
                graphs.launch("profile", self.stream, lambda: self._record(tensors, record, params, rows), at_once=True)
            start = time.perf_counter_ns()
            if in_graph:
                graphs.launch("profile", self.stream, lambda: None)
            else:
                self._record(tensors, record, params, rows)
            check(self.gpu.cuda.cuStreamSynchronize(self.stream), "running the model")
        finally:
            graphs.clear()
        numbers = [start + int(1e6 * milliseconds) for milliseconds in rows.times()]
        ctypes.memmove(stamps, (ctypes.c_uint64 * len(numbers))(*numbers), 8 * len(numbers))

    # Calls whose tensors stay on the GPU

    def run(
        self,
        inputs: Sequence[Given],
        outputs: Sequence[DeviceView | int | None],
        record: CallRecord,
        params: Pointers,
        stream: int,
    ) -> list[Written | None]:
        """Enqueue a call after the work of `stream`, which waits for it; return the outputs' addresses."""
        own = int(self.stream)
        results: dict[int, Written] = {}
        with self.lock, self.gpu.entered(), self._noting(record):
            exchanged = [*inputs, *(output for output in outputs if isinstance(output, DeviceView))]
            self._prepare(record, params, any(isinstance(g, np.ndarray) or g.address % VECTOR for g in exchanged))
            self._release_finished()
            Event(self.gpu, stream).hold(own)
            addresses = self._bind_inputs(inputs)
            results |= {i: self._result(output, own) for i, output in enumerate(outputs) if output is not None}
            copies = []
            for i in range(len(outputs)):
                number, address = len(inputs) + i, results[i].address if i in results else 0
                direct = address % VECTOR == 0
                addresses.append(address if direct else self._own(number))
                if not direct:
                    copies.append((address, self._own(number), self.frame.regions[number].size))
            tensors = tuple(addresses)
            if self.frame.steps is None:
                for i, (block, _) in self._steps(tensors, record, params).items():
                    results[i] = written_block(self.gpu, block, own, self._held)
            else:
                key = ("there", self.frame.key, tensors)
                self._held.graphs.launch(key, self.stream, lambda: self._started(tensors, record, params))
            for target, source, size in copies:
                self.copy(target, source, size)
            done = Event(self.gpu, own)
            done.hold(stream)
            self._pending.append((done, inputs))
            for result in results.values():
                result.is_written(done, stream)
        return [results.get(i) for i in range(len(outputs))]

    def _bind_inputs(self, inputs: Sequence[Given]) -> list[int]:
        """Return the addresses where kernels find the inputs."""
        here = [number for number, array in enumerate(inputs) if isinstance(array, np.ndarray)]
        if here:
            self._wait_for_staging()
        addresses = [self._take(number, array) for number, array in enumerate(inputs)]
        if here:
            self._staged = Event(self.gpu, int(self.stream))
        return addresses

    def _take(self, number: int, array: Given) -> int:
        region = self.frame.regions[number]
        if isinstance(array, np.ndarray):
            ctypes.memmove(self.staged(number), array.__array_interface__["data"][0], region.size)
            self._copy_in(number)
            return self._own(number)
        if array.stream is not None:
            Event(self.gpu, array.stream).hold(int(self.stream))
        if array.address % VECTOR == 0:
            return array.address
        self.copy(self._own(number), array.address, region.size)
        return self._own(number)

    def _result(self, destination: DeviceView | int, own: int) -> Written:
        if isinstance(destination, DeviceView):
            return Written(self.gpu, destination.address, own, (destination.owner, self._held))
        return written_block(self.gpu, pool_of(self.gpu).take(destination, own), own, self._held)

    def _release_finished(self) -> None:
        """Release the inputs of finished calls."""
        while self._pending and self._pending[0][0].is_done():
            self._pending.popleft()
