"""A model on a Vulkan device: one submission per inference if the host has nothing to decide.

Weights and constants are uploaded once. The commands of an inference (copy inputs, dispatch kernels, copy outputs) are
recorded once per set of input sizes, and submitted for each call.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from mirlo.runtime.artifact import Artifact
from mirlo.targets.gpu.commands import Step, StepRange, launch_sites
from mirlo.targets.gpu.device_layout import (
    Hazards,
    Pointers,
    Region,
    address_of,
    constants_of,
    lay_out,
    params_of,
    pointers,
)
from mirlo.targets.gpu.frames import CallFrame, CallRecord, Frames
from mirlo.targets.spirv.pipelines import Pipelines
from mirlo.targets.spirv.recording import Recording
from mirlo.targets.spirv.vulkan import DeviceBuffer, DeviceError, VulkanDevice, api

CHUNK = 16 << 20
"""Bytes per upload, where the device's memory is not mapped."""
CACHED_RECORDINGS = 8
"""Recordings of a model kept for calls with the same sizes."""


Interpreter = Callable[["VulkanModel", CallRecord, Pointers, bool], None]
"""Run a call in which the host decides (`decisions.run`): model, call record, weights, whether it is profiled."""


class VulkanModel:
    """A model on a device."""

    def __init__(self, target: VulkanDevice, artifact: Artifact, interpret: Interpreter):
        self._interpret = interpret
        self.device = target
        self.artifact = artifact
        self._check()
        self.frames = Frames(artifact)
        self.frame: CallFrame
        self._buffers: list[DeviceBuffer] = []
        self._recorded: OrderedDict[tuple[tuple[int, ...], bool], Recording] = OrderedDict()
        self._spare: list[Recording] = []
        """Recordings that may be filled again."""
        with target.lock:
            self.pipelines = Pipelines(target, artifact)
            self.constants, self._constant_buffer = self._upload(constants_of(artifact))
            # These depend on the sizes of a call, and grow on demand.
            self.arena = self.staging = self.tensors = self._buffer(0, host=True)
        self.params: list[Region] = []
        self._param_buffer: DeviceBuffer | None = None
        self.late: dict[int, DeviceBuffer] = {}
        release = partial(_release, target, self._buffers, self._recorded, self._spare, self.pipelines)
        weakref.finalize(self, target.lock.defer, release).atexit = False

    def _check(self) -> None:
        lacking = [f for f in self.artifact.metadata["features"] if f not in self.device.features]
        if lacking:
            raise DeviceError(
                f"the model needs {', '.join(lacking)}, which the device '{self.device.name}' does not have: "
                "compile it with element types that it has (f32, i32)"
            )
        if self.device.limits.minStorageBufferOffsetAlignment > 64:
            raise DeviceError(
                f"the device '{self.device.name}' needs buffers aligned to "
                f"{self.device.limits.minStorageBufferOffsetAlignment} bytes; memory is planned for 64"
            )

    def call(self, tensors: Pointers | None, params: Pointers | None, arena: int, stamps: int | None) -> None:
        """Run the entry function on arrays of addresses, with the signature of compiled CPU code."""
        if tensors is None or params is None:
            self.frames.measure(arena)
            return
        inputs, outputs = len(self.artifact.inputs), len(self.artifact.outputs)
        *addresses, words = (address or 0 for address in pointers(tensors, inputs + outputs + 1))
        record = self.frames.record(words)
        with self.device.lock:
            if self._param_buffer is None:
                self.params, self._param_buffer = self._upload(params_of(self.artifact, params))
                self.pipelines.prepare(launch_sites(self.frames.sites))
            self.frame = self.frames.of(record)
            self._allocate_memory()
            base = self.staging.mapped
            assert base is not None
            for i, region in enumerate(self.frame.regions[:inputs]):
                ctypes.memmove(base + region.offset, addresses[i], region.size)
            if self.frame.steps is not None:
                self._recording(self.frame.steps, stamps is not None).run()
            else:
                self._interpret(self, record, params, stamps is not None)
            for i, region in enumerate(self.frame.regions[inputs:], inputs):
                if region.size:
                    ctypes.memmove(addresses[i], base + region.offset, region.size)
            if stamps is not None:
                self.pipelines.read_stamps(stamps, len(self.artifact.kernels) + 1)

    # Memory

    def fill(self, byte: int) -> None:
        """Fill the memory of calls with a byte, where it is mapped."""
        with self.device.lock:
            for buffer in {id(each): each for each in (self.arena, self.staging, self.tensors)}.values():
                if buffer.mapped is not None:
                    ctypes.memset(buffer.mapped, byte, buffer.size)

    def _buffer(self, size: int, host: bool = False) -> DeviceBuffer:
        """Return memory that lives as long as the model."""
        result = self.device.buffer(size, host)
        self._buffers.append(result)
        return result

    def _allocate_memory(self) -> None:
        """Allocate memory for the sizes of this call; discard recordings if memory moves."""
        frame = self.frame
        if frame.arena <= self.arena.size and frame.total <= self.staging.size and self.staging is not self.arena:
            return
        for recording in self._recorded.values():
            self.close_recording(recording)
        self._recorded.clear()
        old = {id(buffer): buffer for buffer in (self.arena, self.staging, self.tensors)}
        sizes = max(frame.arena, self.arena.size), max(frame.total, self.staging.size)
        for buffer in old.values():
            self._buffers.remove(buffer)
            self.device.free(buffer)
        self.arena = self._buffer(sizes[0])
        self.staging = self._buffer(sizes[1], host=True)
        # If the device computes in mapped memory, tensors need no second copy.
        self.tensors = self.staging if self.staging.local else self._buffer(sizes[1])

    def _upload(self, data: Sequence[bytes | ctypes.Array[ctypes.c_char]]) -> tuple[list[Region], DeviceBuffer]:
        """Upload bytes to memory of the device."""
        regions, total = lay_out([len(part) for part in data])
        buffer = self._buffer(total)
        if buffer.mapped is not None:
            for region, part in zip(regions, data, strict=True):
                ctypes.memmove(buffer.mapped + region.offset, address_of(part), region.size)
            return regions, buffer
        staging = self.device.buffer(min(CHUNK, total), host=True)
        assert staging.mapped is not None
        for region, part in zip(regions, data, strict=True):
            for at in range(0, region.size, CHUNK):
                size = min(CHUNK, region.size - at)
                ctypes.memmove(staging.mapped, address_of(part) + at, size)
                commands = self.device.commands()
                self.device.copy(commands, staging, 0, buffer, region.offset + at, size)
                api().vkEndCommandBuffer(commands)
                self.device.run(commands)
                self.device.drop([commands])
        self.device.free(staging)
        return regions, buffer

    def place(self, where: StepRange) -> tuple[DeviceBuffer, int, int]:
        """Return the buffer, offset and size of a range of the program."""
        space, index, offset, size = where
        if space == "arena":
            buffer, start, whole = self.arena, 0, max(self.frame.arena, 4)
        elif space == "tensor":
            region = self.frame.regions[index]
            buffer, start, whole = self.tensors, region.offset, region.size
        elif space == "late":
            buffer, start, whole = self.late[index], 0, self.late[index].size
        elif space == "param":
            assert self._param_buffer is not None
            buffer, start, whole = self._param_buffer, self.params[index].offset, self.params[index].size
        else:
            buffer, start, whole = self._constant_buffer, self.constants[index].offset, self.constants[index].size
        return buffer, start + offset, size if size >= 0 else whole - offset

    def touched(self, step: Step) -> list[tuple[DeviceBuffer, int, int, bool]]:
        """Return what a step reads and writes."""
        if "copy" in step:
            return [(*self.place(where), written) for where, written in zip(step["copy"], (False, True), strict=True)]
        ranges = [(i, where) for i, where in enumerate(step["arguments"]) if isinstance(where, tuple)]
        return [(*self.place(where), i in step["writes"]) for i, where in ranges]

    # Commands

    def _recording(self, steps: Sequence[Step], profiled: bool) -> Recording:
        key = (self.frame.key, profiled)
        if key not in self._recorded:
            self._recorded[key] = self._record(steps, profiled)
            while len(self._recorded) > CACHED_RECORDINGS:
                self.close_recording(self._recorded.popitem(last=False)[1])
        self._recorded.move_to_end(key)
        return self._recorded[key]

    def open_recording(self) -> Recording:
        """Return an empty recording."""
        if not self._spare:
            return Recording(self.device, self.pipelines)
        self._spare[-1].restart()
        return self._spare.pop()

    def close_recording(self, recording: Recording) -> None:
        """Take back a recording whose commands have finished."""
        if len(self._spare) < CACHED_RECORDINGS:
            self._spare.append(recording)
        else:
            recording.release()

    def _record(self, steps: Sequence[Step], profiled: bool) -> Recording:
        result = self.open_recording()
        self.copy_inputs(result)
        if profiled:
            self._record_profiled(result, steps)
        else:
            hazards = Hazards()
            for step in steps:
                touched = self.touched(step)
                if hazards.must_wait(touched):
                    result.barrier()
                self.record_step(result, step, touched)
        self.copy_outputs(result)
        result.end()
        return result

    def _record_profiled(self, recording: Recording, steps: Sequence[Step]) -> None:
        """Record steps that run one after another with time stamps between them."""
        rows = len(self.artifact.kernels)
        self.pipelines.begin_stamps(recording.commands, rows + 1)
        row = -1
        for step in steps:
            recording.barrier()
            while row < step["row"]:
                row += 1
                self.pipelines.stamp(recording.commands, row)
            self.record_step(recording, step, self.touched(step))
        recording.barrier()
        while row < rows:
            row += 1
            self.pipelines.stamp(recording.commands, row)

    @staticmethod
    def record_step(recording: Recording, step: Step, touched: Sequence[tuple[DeviceBuffer, int, int, bool]]) -> None:
        """Record a launch or a copy."""
        places = [(buffer, offset, size) for buffer, offset, size, _ in touched]
        if "copy" in step:
            recording.copy(*places)
        else:
            recording.dispatch(step, places)

    def copy_inputs(self, recording: Recording) -> None:
        """Record the copy of the inputs to the device."""
        self._transfer(recording, self.staging, self.tensors, self.frame.regions[: len(self.artifact.inputs)])

    def copy_outputs(self, recording: Recording) -> None:
        """Record the copy of the outputs to the host."""
        recording.barrier()
        self._transfer(recording, self.tensors, self.staging, self.frame.regions[len(self.artifact.inputs) :])

    @staticmethod
    def _transfer(recording: Recording, source: DeviceBuffer, target: DeviceBuffer, regions: list[Region]) -> None:
        """Copy tensors between mapped memory and device memory, if they differ."""
        if source is target:
            return
        for region in regions:
            if region.size:
                recording.copy((source, region.offset, region.size), (target, region.offset, region.size))
        recording.barrier()


def _release(
    target: VulkanDevice,
    buffers: list[DeviceBuffer],
    recorded: Mapping[tuple[tuple[int, ...], bool], Recording],
    spare: list[Recording],
    pipelines: Pipelines,
) -> None:
    """Release everything that a model holds on a device, whose lock is held; a fork has nothing of its parent's."""
    if target.process != os.getpid():
        return
    for recording in (*recorded.values(), *spare):
        recording.release()
    pipelines.release()
    for buffer in buffers:
        target.free(buffer)
