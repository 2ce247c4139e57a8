"""The loader `vulkan`: a compiled model on a Vulkan device, its whole inference one submission.

Weights and constants are placed on the device once. The commands of an inference are recorded once, and submitted
again for each call: inputs to the device, one dispatch after another, outputs back.
"""

from __future__ import annotations

import ctypes
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
from mirlo.targets.spirv.pipelines import Pipelines
from mirlo.targets.spirv.vulkan import Buffer, Device, DeviceError, api, device

CHUNK = 16 << 20
"""Bytes that are uploaded at a time, where the device's memory cannot be reached from here."""


def load(artifact: Artifact) -> LoadedCode:
    """Make an artifact for Vulkan callable."""
    entry = WhenCalled(lambda: Model(device(), artifact))
    return LoadedCode(entry, keep=entry)


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
            self.arena = target.buffer(program["arena"])
            self.staging = target.buffer(total, host=True)
            # Where the device computes in memory that is reached from here, tensors need no second place.
            self.tensors = self.staging if self.staging.local else target.buffer(total)
            self.constants, self._constant_buffer = self._upload(constants_of(artifact))
        self.params: list[Region] = []
        self._param_buffer: Buffer | None = None
        self._recorded: dict[bool, Any] = {}

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

    def _place_params(self, params: Any) -> None:
        self.params, self._param_buffer = self._upload(params_of(self.artifact, params))

    def _upload(self, data: list[Any]) -> tuple[list[Region], Buffer]:
        """Bytes in memory of the device."""
        regions, total = lay_out([len(part) for part in data])
        buffer = self.device.buffer(total)
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

    # Commands

    def _commands(self, profiled: bool) -> Any:
        if profiled not in self._recorded:
            self._recorded[profiled] = self._record(profiled)
        return self._recorded[profiled]

    def _record(self, profiled: bool) -> Any:
        inputs = len(self.artifact.inputs)
        self.pipelines.prepare(self.steps)
        commands = self.device.commands()
        if self.tensors is not self.staging:
            for region in self.regions[:inputs]:
                self.device.copy(commands, self.staging, region.offset, self.tensors, region.offset, region.size)
            self.device.barrier(commands)
        row = -1
        if profiled:
            self.pipelines.begin_stamps(commands, len(self.artifact.kernels) + 1)
        for step in self.steps:
            if profiled:
                while row < step["row"]:
                    row += 1
                    self.pipelines.stamp(commands, row)
            if "copy" in step:
                source, target = (self.place(where) for where in step["copy"])
                self.device.copy(commands, source[0], source[1], target[0], target[1], source[2])
            else:
                self.pipelines.dispatch(commands, step, [self.place(where) for where in step["arguments"]])
            self.device.barrier(commands)
        if profiled:
            while row < len(self.artifact.kernels):
                row += 1
                self.pipelines.stamp(commands, row)
        if self.tensors is not self.staging:
            for region in self.regions[inputs:]:
                self.device.copy(commands, self.tensors, region.offset, self.staging, region.offset, region.size)
            self.device.barrier(commands)
        api().vkEndCommandBuffer(commands)
        return commands
