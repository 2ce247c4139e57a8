"""The loader `vulkan`: a compiled model on a Vulkan device, its whole inference one submission.

Weights and constants are placed on the device once. The commands of an inference are recorded once, and submitted
again for each call: inputs to the device, one dispatch after another, outputs back.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

from mirlo.runtime.artifact import Artifact
from mirlo.runtime.loaders import LoadedCode
from mirlo.targets.gpu.places import (
    Hazards,
    Region,
    WhenCalled,
    address_of,
    constants_of,
    lay_out,
    params_of,
    pointers,
    tensors_of,
)
from mirlo.targets.spirv.pipelines import Pipelines
from mirlo.targets.spirv.vulkan import Buffer, Device, DeviceError, api, device

CHUNK = 16 << 20
"""Bytes that are uploaded at a time, where the device's memory cannot be reached from here."""


def load(artifact: Artifact) -> LoadedCode:
    """Make an artifact for Vulkan callable, on the first device unless it is asked for another."""
    return load_on(artifact, 0)


def load_on(artifact: Artifact, number: int) -> LoadedCode:
    """The same for the device of a number: discrete GPUs come first."""
    entry = WhenCalled(lambda: Model(device(number), artifact))
    return LoadedCode(
        entry, keep=entry, on=lambda other: load_on(artifact, other),
        device_arena=artifact.metadata["program"]["arena"],
    )  # fmt: skip


class Model:
    """A model on a device."""

    def __init__(self, target: Device, artifact: Artifact):
        self.device = target
        self.artifact = artifact
        self._check()
        program = artifact.metadata["program"]
        self.steps = program["steps"]
        self.regions, total = tensors_of(artifact)
        with target.lock:
            self.pipelines = Pipelines(target, artifact)
            self._buffers: list[Buffer] = []
            self.arena = self._buffer(program["arena"])
            self.staging = self._buffer(total, host=True)
            # Where the device computes in memory that is reached from here, tensors need no second place.
            self.tensors = self.staging if self.staging.local else self._buffer(total)
            self.constants, self._constant_buffer = self._upload(constants_of(artifact))
        self.params: list[Region] = []
        self._param_buffer: Buffer | None = None
        self._recorded: dict[bool, Any] = {}
        weakref.finalize(self, _release, target, self._buffers, self._recorded, self.pipelines).atexit = False

    def _check(self) -> None:
        lacking = [f for f in self.artifact.metadata["features"] if f not in self.device.features]
        if lacking:
            raise DeviceError(
                f"the model needs {', '.join(lacking)}, which the device '{self.device.name}' does not have: "
                "compile it with element types that it has (f32, i32)"
            )
        if self.device.limits.minStorageBufferOffsetAlignment > 64:
            raise DeviceError(
                f"the device '{self.device.name}' wants buffers aligned to "
                f"{self.device.limits.minStorageBufferOffsetAlignment} bytes; memory is planned for 64"
            )

    def call(self, tensors: Any, params: Any, arena: Any, stamps: Any) -> None:
        """The entry function: arrays of addresses, as compiled code for the CPU has it."""
        inputs = len(self.artifact.inputs)
        tensors = pointers(tensors, len(self.regions))
        with self.device.lock:
            if self._param_buffer is None:
                self._place_params(params)
            commands = self._commands(profiled=stamps is not None)
            base = self.staging.mapped
            assert base is not None
            for i, region in enumerate(self.regions[:inputs]):
                ctypes.memmove(base + region.offset, tensors[i], region.size)
            self.device.run(commands)
            for i, region in enumerate(self.regions[inputs:], inputs):
                ctypes.memmove(tensors[i], base + region.offset, region.size)
            if stamps is not None:
                self.pipelines.read_stamps(stamps, len(self.artifact.kernels) + 1)

    # Memory

    def _buffer(self, size: int, host: bool = False) -> Buffer:
        """Memory that is the model's as long as it lives."""
        made = self.device.buffer(size, host)
        self._buffers.append(made)
        return made

    def _place_params(self, params: Any) -> None:
        self.params, self._param_buffer = self._upload(params_of(self.artifact, params))

    def _upload(self, data: list[Any]) -> tuple[list[Region], Buffer]:
        """Bytes in memory of the device."""
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

    def place(self, where: list[Any]) -> tuple[Buffer, int, int]:
        """The buffer, offset and size of a range of the program."""
        space, index, offset, size = where
        if space == "arena":
            return self.arena, offset, size
        if space == "tensor":
            return self.tensors, self.regions[index].offset + offset, size
        if space == "param":
            assert self._param_buffer is not None
            return self._param_buffer, self.params[index].offset + offset, size
        return self._constant_buffer, self.constants[index].offset + offset, size

    def _touched(self, step: dict[str, Any]) -> list[tuple[Buffer, int, int, bool]]:
        """What a step reads and writes."""
        if "copy" in step:
            return [(*self.place(where), written) for where, written in zip(step["copy"], (False, True), strict=True)]
        return [(*self.place(where), i in step["writes"]) for i, where in enumerate(step["arguments"])]

    # Commands

    def _commands(self, profiled: bool) -> Any:
        if profiled not in self._recorded:
            self._recorded[profiled] = self._record(profiled)
        return self._recorded[profiled]

    def _record(self, profiled: bool) -> Any:
        inputs = len(self.artifact.inputs)
        self.pipelines.prepare(self.steps)
        commands = self.device.commands()
        self._transfer(commands, self.staging, self.tensors, self.regions[:inputs])
        if profiled:
            self._record_profiled(commands)
        else:
            hazards = Hazards()
            for step in self.steps:
                if hazards.must_wait(self._touched(step)):
                    self.device.barrier(commands)
                self._record_step(commands, step)
        self.device.barrier(commands)
        self._transfer(commands, self.tensors, self.staging, self.regions[inputs:])
        api().vkEndCommandBuffer(commands)
        return commands

    def _record_profiled(self, commands: Any) -> None:
        """Steps that wait for each other, with time stamps between: so that kernels are told apart."""
        rows = len(self.artifact.kernels)
        self.pipelines.begin_stamps(commands, rows + 1)
        row = -1
        for step in self.steps:
            self.device.barrier(commands)
            while row < step["row"]:
                row += 1
                self.pipelines.stamp(commands, row)
            self._record_step(commands, step)
        self.device.barrier(commands)
        while row < rows:
            row += 1
            self.pipelines.stamp(commands, row)

    def _record_step(self, commands: Any, step: dict[str, Any]) -> None:
        places = [(buffer, offset, size) for buffer, offset, size, _ in self._touched(step)]
        if "copy" in step:
            source, target = places
            self.device.copy(commands, source[0], source[1], target[0], target[1], source[2])
        else:
            self.pipelines.dispatch(commands, step, places)

    def _transfer(self, commands: Any, source: Buffer, target: Buffer, regions: list[Region]) -> None:
        """Tensors between the memory that is reached from here and that of the device, if these are two."""
        if source is target:
            return
        for region in regions:
            self.device.copy(commands, source, region.offset, target, region.offset, region.size)
        self.device.barrier(commands)


def _release(target: Device, buffers: list[Buffer], recorded: dict[bool, Any], pipelines: Pipelines) -> None:
    """Give back what a model has on a device."""
    with target.lock:
        target.drop(list(recorded.values()))
        pipelines.release()
        for buffer in buffers:
            target.free(buffer)
