"""Compute pipelines of a model, their bindings, and time stamps."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from mirlo.runtime.artifact import Artifact
from mirlo.runtime.records import dataclass
from mirlo.targets.spirv.descriptors import BufferRange, DescriptorSets
from mirlo.targets.spirv.vulkan import DeviceError, VulkanDevice, api

if TYPE_CHECKING:
    from mirlo.targets.gpu.commands import Site, Step


@dataclass(frozen=True)
class ComputePipeline:
    """A pipeline for a number of buffers."""

    pipeline: object
    layout: object


class Pipelines:
    """The pipelines of a model, each made once."""

    def __init__(self, device: VulkanDevice, artifact: Artifact):
        self.device = device
        self.artifact = artifact
        self._kernels: dict[str, ComputePipeline] = {}
        self._layouts: dict[int, tuple[object, object]] = {}
        self._queries: object = None
        self._largest = int(device.limits.maxStorageBufferRange)

    def release(self) -> None:
        """Release everything; no commands that use it may be left."""
        vk, device = api(), self.device.handle
        for kernel in self._kernels.values():
            vk.vkDestroyPipeline(device, kernel.pipeline, None)
        for slots, whole in self._layouts.values():
            vk.vkDestroyPipelineLayout(device, whole, None)
            vk.vkDestroyDescriptorSetLayout(device, slots, None)
        if self._queries is not None:
            vk.vkDestroyQueryPool(device, self._queries, None)

    def prepare(self, launches: Iterable[Site]) -> None:
        """Make all pipelines that launches need, several in parallel: drivers compile slowly."""
        wanted = {s["kernel"]: (s["kernel"], self._bindings(s), s["block"]) for s in launches}
        for _, bindings, _ in wanted.values():
            self._layout(bindings)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            # Reading the results raises the errors of the workers.
            list(pool.map(lambda one: self._kernel(*one), wanted.values()))

    def _bindings(self, launch: Site) -> int:
        """Return the number of buffers of a launch: its tensors, and one for all scalars."""
        ranges = sum(not isinstance(argument, (int, str)) for argument in launch["arguments"])
        return ranges + (ranges < len(launch["arguments"]) or self.reports(launch["kernel"]))

    def reports(self, kernel: str) -> bool:
        """Return whether a kernel reports loops that the device ended."""
        return bool(self.artifact.metadata["kernels"][kernel].get("reports", False))

    def dispatch(
        self, commands: object, step: Step, places: Sequence[BufferRange], descriptors: DescriptorSets
    ) -> None:
        """Record one launch."""
        vk = api()
        for *_, size in places:
            if size > self._largest:
                raise DeviceError(
                    f"'{shown(step['kernel'])}' works on {size} bytes at once, "
                    f"'{self.device.name}' can bind {self._largest}"
                )
        most = list(self.device.limits.maxComputeWorkGroupCount)
        if any(size > limit for size, limit in zip(step["grid"], most, strict=True)):
            raise DeviceError(
                f"'{shown(step['kernel'])}' has {' x '.join(map(str, step['grid']))} blocks of threads; "
                f"'{self.device.name}' has at most {' x '.join(map(str, most))}"
            )
        kernel = self._kernel(step["kernel"], len(places), step["block"])
        vk.lib.vkCmdBindPipeline(commands, vk.VK_PIPELINE_BIND_POINT_COMPUTE, kernel.pipeline)
        if places:
            descriptors.bind(commands, kernel.layout, self._layout(len(places))[0], places)
        vk.lib.vkCmdDispatch(commands, *step["grid"])

    def _kernel(self, name: str, bindings: int, block: list[int]) -> ComputePipeline:
        result = self._kernels.get(name)
        if result is not None:
            return result
        vk = api()
        limits = self.device.limits
        threads = block[0] * block[1] * block[2]
        if threads > limits.maxComputeWorkGroupInvocations or any(
            size > most for size, most in zip(block, limits.maxComputeWorkGroupSize, strict=True)
        ):
            raise DeviceError(
                f"'{shown(name)}' has blocks of {threads} threads; '{self.device.name}' has at most "
                f"{limits.maxComputeWorkGroupInvocations}"
            )
        entry = self.artifact.metadata["kernels"][name]
        if entry.get("shared", 0) > limits.maxComputeSharedMemorySize:
            raise DeviceError(
                f"blocks of threads of '{shown(name)}' share {entry['shared']} bytes; "
                f"'{self.device.name}' has at most {limits.maxComputeSharedMemorySize}"
            )
        at, size = entry["code"]
        code = self.artifact.code[at : at + size]
        shader = vk.vkCreateShaderModule(
            self.device.handle, vk.VkShaderModuleCreateInfo(codeSize=len(code), pCode=code), None
        )
        layout = self._layout(bindings)[1]
        stage = vk.VkPipelineShaderStageCreateInfo(
            stage=vk.VK_SHADER_STAGE_COMPUTE_BIT, module=shader, pName=entry["entry"]
        )
        info = vk.VkComputePipelineCreateInfo(stage=stage, layout=layout)
        pipeline = vk.vkCreateComputePipelines(self.device.handle, None, 1, [info], None)[0]
        vk.vkDestroyShaderModule(self.device.handle, shader, None)
        self._kernels[name] = ComputePipeline(pipeline, layout)
        return self._kernels[name]

    def _layout(self, bindings: int) -> tuple[object, object]:
        """Return the layout of a descriptor set with this many buffers, and of a pipeline with that set."""
        if bindings not in self._layouts:
            vk = api()
            slots = [
                vk.VkDescriptorSetLayoutBinding(
                    binding=i, descriptorType=vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, descriptorCount=1,
                    stageFlags=vk.VK_SHADER_STAGE_COMPUTE_BIT,
                ) for i in range(bindings)
            ]  # fmt: skip
            set_layout = vk.vkCreateDescriptorSetLayout(
                self.device.handle, vk.VkDescriptorSetLayoutCreateInfo(pBindings=slots), None
            )
            whole = vk.vkCreatePipelineLayout(
                self.device.handle, vk.VkPipelineLayoutCreateInfo(pSetLayouts=[set_layout]), None
            )
            self._layouts[bindings] = (set_layout, whole)
        return self._layouts[bindings]

    # Time stamps

    def begin_stamps(self, commands: object, count: int) -> None:
        """Record what must come before the first time stamp."""
        vk = api()
        if not self.device.has_timestamps:
            raise DeviceError(f"'{self.device.name}' has no clock: its kernels cannot be timed")
        if self._queries is None:
            self._queries = vk.vkCreateQueryPool(
                self.device.handle,
                vk.VkQueryPoolCreateInfo(queryType=vk.VK_QUERY_TYPE_TIMESTAMP, queryCount=count),
                None,
            )
        vk.vkCmdResetQueryPool(commands, self._queries, 0, count)

    def stamp(self, commands: object, number: int) -> None:
        """Record the time after all previous work."""
        vk = api()
        vk.vkCmdWriteTimestamp(commands, vk.VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, self._queries, number)

    def read_stamps(self, address: int, count: int) -> None:
        """Write the time stamps of the last run to an array of 64-bit integers."""
        vk = api()
        data = vk.ffi.new("uint64_t[]", count)
        flags = vk.VK_QUERY_RESULT_64_BIT | vk.VK_QUERY_RESULT_WAIT_BIT
        vk.vkGetQueryPoolResults(self.device.handle, self._queries, 0, count, 8 * count, data, 8, flags)
        ctypes.memmove(address, bytes(vk.ffi.buffer(data)), 8 * count)


def shown(name: str) -> str:
    """Return a kernel's name in its module without that of the module."""
    return name.rpartition("::")[2]
