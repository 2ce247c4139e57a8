"""A model on a device with WebGPU: one submission per inference, unless the host has to decide something.

Weights and constants are uploaded once, each to a buffer of its own. Pipelines are made once, and groups of bound
ranges once per set of input sizes.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirlo.extend.gpu import (
    CallFrame,
    CallRecord,
    Frames,
    LaunchStep,
    Pointers,
    StepRange,
    StepWorker,
    constants_of,
    params_of,
    pointers,
)
from mirlo.extend.runtime import ModelArtifact
from mirlo_webgpu.device import DeviceError, WebGpuDevice
from mirlo_webgpu.ranges import MIN_BOUND, bound_size, resolve, words

if TYPE_CHECKING:
    import wgpu

CACHED_STEPS = 8
"""Number of input-size combinations whose bind groups are kept."""


@dataclass(frozen=True)
class Place:
    """A range of a buffer."""

    buffer: wgpu.GPUBuffer
    offset: int
    size: int


@dataclass(frozen=True)
class Launch:
    """A kernel with its bound ranges."""

    pipeline: wgpu.GPUComputePipeline
    group: wgpu.GPUBindGroup
    grid: Sequence[int]


@dataclass(frozen=True)
class Copy:
    """A copy between ranges."""

    source: Place
    target: Place


class WebGpuModel:
    """A model on a device."""

    def __init__(self, target: WebGpuDevice, artifact: ModelArtifact):
        self.device = target
        self.artifact = artifact
        self.frames = Frames(artifact)
        self.frame: CallFrame
        self.late: dict[int, wgpu.GPUBuffer] = {}
        self._pipelines: dict[str, wgpu.GPUComputePipeline] = {}
        self._steps: OrderedDict[tuple[int, ...], list[Launch | Copy]] = OrderedDict()
        self._is_uploaded = False
        self._sizes: list[int] = []
        self._scratch: wgpu.GPUBuffer | None = None
        with target.lock:
            self._weights = [
                self._upload(ctypes.create_string_buffer(data, len(data))) for data in constants_of(artifact)
            ]
            """Buffers of constants; after the first call with weights, those of the weights come first."""
            # These depend on the sizes of a call, and grow on demand.
            self._arena = self._tensors = target.buffer(0)
            self._staging = target.staging(0)

    def call(self, tensors: Pointers | None, params: Pointers | None, arena: int, stamps: int | None) -> None:
        """Run the entry function on arrays of addresses, with the signature of code for CPUs."""
        if tensors is None or params is None:
            self.frames.measure(arena)
            return
        if stamps is not None:
            raise DeviceError("kernels of target 'webgpu' are not timed: measure whole calls")
        inputs, outputs = len(self.artifact.inputs), len(self.artifact.outputs)
        *addresses, record_address = (address or 0 for address in pointers(tensors, inputs + outputs + 1))
        record = self.frames.record(record_address)
        with self.device.lock, self.device.checked():
            if not self._is_uploaded:
                self._weights[:0] = [self._upload(data) for data in params_of(self.artifact, params)]
                self._sizes = [buffer.size for buffer in self._weights]
                self._is_uploaded = True
            self.frame = self.frames.of(record)
            self._allocate_memory()
            for i, region in enumerate(self.frame.regions[:inputs]):
                self.device.upload(self._tensors, region.offset, addresses[i], region.size)
            if self.frame.steps is not None:
                commands = Commands(self)
                for step in self._prepared(self.frame.steps):
                    commands.add(step)
                self._finish(commands, addresses)
            else:
                self._interpret(record, params, addresses)

    def _interpret(self, record: CallRecord, params: Pointers, addresses: Sequence[int]) -> None:
        """Run a call whose host program has decisions."""
        worker = Worker(self, record, params)
        try:
            if self.frames.run(record, worker.execute):
                self._finish(worker.commands, addresses)
                worker.fetch_outputs()
        finally:
            self.late.clear()

    def _finish(self, commands: Commands, addresses: Sequence[int]) -> None:
        """Submit the remaining commands, and copy the outputs to the host."""
        first = len(self.artifact.inputs)
        regions = self.frame.regions[first:]
        for region in regions:
            if region.size:
                commands.to_staging(Place(self._tensors, region.offset, region.size), self._staging, region.offset)
        commands.submit()
        sized = [(region, address) for region, address in zip(regions, addresses[first:], strict=True) if region.size]
        for region, address in sized:
            self.device.read(self._staging, address, region.size, region.offset)

    # Memory

    def _upload(self, data: ctypes.Array[ctypes.c_char]) -> wgpu.GPUBuffer:
        buffer = self.device.buffer(len(data))
        self.device.upload(buffer, 0, ctypes.addressof(data), len(data))
        return buffer

    def _allocate_memory(self) -> None:
        """Allocate memory for the sizes of this call; discard bind groups if memory moves."""
        frame = self.frame
        if frame.arena > self._arena.size:
            self._steps.clear()
            self._arena = self.device.buffer(frame.arena)
        if frame.total > self._tensors.size:
            self._steps.clear()
            self._tensors = self.device.buffer(frame.total)
            self._staging = self.device.staging(frame.total)

    def scratch(self, size: int) -> wgpu.GPUBuffer:
        """Return memory for copies within one buffer, which WebGPU does not support."""
        if self._scratch is None or self._scratch.size < size:
            self._scratch = self.device.buffer(size)
        return self._scratch

    def place(self, where: StepRange) -> Place:
        """Return a range of the program on the device."""
        space, number, offset, size = where
        if space == "late":
            buffer = self.late[number]
            return Place(buffer, offset, size if size >= 0 else buffer.size - offset)
        space, number, offset, size = resolve(where, self.frame, self._sizes, len(self.artifact.params))
        return Place({"arena": self._arena, "tensor": self._tensors}.get(space) or self._weights[number], offset, size)

    # Steps

    def _prepared(self, steps: Sequence[LaunchStep]) -> list[Launch | Copy]:
        key = self.frame.key
        if key not in self._steps:
            self._steps[key] = [self.prepare(step) for step in steps]
            while len(self._steps) > CACHED_STEPS:
                self._steps.popitem(last=False)
        self._steps.move_to_end(key)
        return self._steps[key]

    def prepare(self, step: LaunchStep) -> Launch | Copy:
        """Return a launch or a copy with this call's memory."""
        if "copy" in step:
            source, target = step["copy"]
            return Copy(self.place(source), self.place(target))
        places = [self._bound(self.place(each), step) for each in step["arguments"] if isinstance(each, tuple)]
        scalars = [each for each in step["arguments"] if isinstance(each, int)]
        if scalars:
            places.append(self._scalars(scalars))
        pipeline = self._pipeline(step["kernel"], len(places), bool(scalars))
        return Launch(pipeline, self.device.bind(places, bool(scalars)), step["grid"])

    def _bound(self, place: Place, step: LaunchStep) -> tuple[wgpu.GPUBuffer, int, int]:
        most, room = self.device.limits["max-storage-buffer-binding-size"], place.buffer.size - place.offset
        if place.offset < 0 or not 0 <= place.size <= room:
            raise DeviceError("the model's host program binds memory that it does not have: compile it again")
        if place.offset % self.device.alignment:
            raise DeviceError(
                f"'{self.device.name}' binds memory at multiples of {self.device.alignment} bytes, a tensor of "
                f"'{step['kernel'].rpartition('::')[2]}' is at {place.offset}"
            )
        if place.size > most:
            raise DeviceError(
                f"'{step['kernel'].rpartition('::')[2]}' works on {place.size} bytes at once, '{self.device.name}' "
                f"can bind {most}"
            )
        return place.buffer, place.offset, min(bound_size(place.size), room)

    def _scalars(self, numbers: Sequence[int]) -> tuple[wgpu.GPUBuffer, int, int]:
        data = (ctypes.c_int32 * max(len(numbers), MIN_BOUND // 4))(*numbers)
        buffer = self.device.buffer(ctypes.sizeof(data))
        self.device.upload(buffer, 0, ctypes.addressof(data), ctypes.sizeof(data))
        return buffer, 0, ctypes.sizeof(data)

    def _pipeline(self, name: str, bindings: int, reads_scalars: bool) -> wgpu.GPUComputePipeline:
        if name not in self._pipelines:
            entry = self.artifact.metadata["kernels"][name]
            at, size = entry["code"]
            text = self.artifact.code[at : at + size].decode()
            self._pipelines[name] = self.device.pipeline(text, entry["entry"], bindings, reads_scalars)
        return self._pipelines[name]


class Commands:
    """Commands that are recorded and submitted together."""

    def __init__(self, model: WebGpuModel) -> None:
        self._model = model
        self._device = model.device
        self._encoder: wgpu.GPUCommandEncoder | None = None
        self._pass: wgpu.GPUComputePassEncoder | None = None

    def add(self, step: Launch | Copy) -> None:
        """Record a launch or a copy."""
        if isinstance(step, Copy):
            self._copy(step)
            return
        if self._pass is None:
            self._pass = self._open().begin_compute_pass()
        self._pass.set_pipeline(step.pipeline)
        self._pass.set_bind_group(0, step.group)
        self._pass.dispatch_workgroups(*step.grid)

    def to_staging(self, source: Place, staging: wgpu.GPUBuffer, offset: int) -> None:
        """Record a copy to memory that the host reads."""
        self._end_pass()
        self._open().copy_buffer_to_buffer(source.buffer, source.offset, staging, offset, words(source.size))

    def _copy(self, step: Copy) -> None:
        self._end_pass()
        encoder, size = self._open(), words(step.source.size)
        source, at = step.source.buffer, step.source.offset
        if source is step.target.buffer:
            scratch = self._model.scratch(size)
            encoder.copy_buffer_to_buffer(source, at, scratch, 0, size)
            source, at = scratch, 0
        encoder.copy_buffer_to_buffer(source, at, step.target.buffer, step.target.offset, size)

    def _open(self) -> wgpu.GPUCommandEncoder:
        if self._encoder is None:
            self._encoder = self._device.handle.create_command_encoder()
        return self._encoder

    def _end_pass(self) -> None:
        if self._pass is not None:
            self._pass.end()
            self._pass = None

    def submit(self) -> None:
        """Submit the recorded commands."""
        self._end_pass()
        if self._encoder is not None:
            self._device.queue.submit([self._encoder.finish()])
            self._encoder = None


class Worker(StepWorker):
    """Executes the steps of a call whose host program has decisions."""

    def __init__(self, model: WebGpuModel, record: CallRecord, params: Pointers) -> None:
        super().__init__(model.artifact, record, params)
        self._model = model
        self.commands = Commands(model)
        self._outputs: dict[int, tuple[int, int]] = {}

    def enqueue(self, step: LaunchStep) -> None:
        """Record a launch or a copy."""
        self.commands.add(self._model.prepare(step))

    def fetch(self, where: StepRange, target: int, size: int) -> None:
        """Copy a range to the host, after all previous steps."""
        place = self._model.place(where)
        start = place.offset // 4 * 4
        before = place.offset - start
        staging = self._model.device.staging(before + size)
        self.commands.to_staging(Place(place.buffer, start, before + size), staging, 0)
        self.commands.submit()
        data = ctypes.create_string_buffer(words(before + size))
        self._model.device.read(staging, ctypes.addressof(data), len(data))
        ctypes.memmove(target, ctypes.addressof(data) + before, size)

    def put(self, where: StepRange, source: int, size: int) -> None:
        """Copy bytes of the host to a range, after all previous steps."""
        place = self._model.place(where)
        self.commands.submit()
        self._model.device.upload(place.buffer, place.offset, source, size)

    def allocate(self, memory: int, number: int, size: int) -> None:
        """Allocate memory of data-dependent size."""
        self._model.late[memory] = self._model.device.buffer(size)
        if number >= 0:
            self._outputs[number] = (memory, size)

    def fetch_outputs(self) -> None:
        """Copy the outputs of data-dependent size to the caller's arrays."""
        for number, (memory, size) in self._outputs.items():
            target = self._model.frames.allocate_output(self._record, number, size)
            if target and size:
                self.fetch(("late", memory, 0, size), target, size)
