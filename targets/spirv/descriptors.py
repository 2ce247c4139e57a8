"""Descriptor sets of recorded commands, written without the bindings' own structures, which are slow to make."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache

from mirlo.targets.spirv.vulkan import DeviceBuffer, DeviceError, VulkanDevice, api, whole_words

BufferRange = tuple[DeviceBuffer, int, int]
"""A buffer, an offset and a size in bytes."""
SETS, BUFFERS = 64, 512
"""Descriptor sets of a pool, and buffers of all of them: enough for a layer of a transformer."""


@cache
def _packer(buffers: int) -> struct.Struct:
    """Return what packs `VkDescriptorBufferInfo` of this many buffers."""
    return struct.Struct(f"={3 * buffers}Q")


class DescriptorSets:
    """The descriptor sets of one recording; `reset` frees all of them for the next one."""

    def __init__(self, device: VulkanDevice) -> None:
        self._device = device
        self._pools: list[tuple[object, int]] = []
        """Pools, and the buffers that each has room for."""
        self._used = self._sets = self._buffers = 0
        """The number of the pool in use, and what is left in it."""
        vk = api()
        ffi = vk.ffi
        self._layouts = ffi.new("VkDescriptorSetLayout[1]")
        self._made = ffi.new("VkDescriptorSet[1]")
        self._wanted = ffi.new("VkDescriptorSetAllocateInfo*")
        self._wanted.sType = vk.VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO
        self._wanted.descriptorSetCount, self._wanted.pSetLayouts = 1, self._layouts
        self._write = ffi.new("VkWriteDescriptorSet*")
        self._write.sType = vk.VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET
        self._write.descriptorType = vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER
        self._reserve(16)

    def _reserve(self, buffers: int) -> None:
        """Make room to describe this many buffers."""
        ffi = api().ffi
        self._infos = ffi.new("VkDescriptorBufferInfo[]", buffers)
        self._bytes = ffi.buffer(self._infos)
        self._write.pBufferInfo = self._infos

    def bind(self, commands: object, pipeline_layout: object, layout: object, places: Sequence[BufferRange]) -> None:
        """Record the binding of a new set with these buffers."""
        vk = api()
        lib, null, device = vk.lib, vk.ffi.NULL, self._device.handle
        self._allocate(layout, len(places))
        if len(places) > len(self._infos):
            self._reserve(2 * len(places))
        words = [word for buffer, offset, size in places for word in (buffer.number, offset, whole_words(size))]
        _packer(len(places)).pack_into(self._bytes, 0, *words)
        # Beyond the first binding, a write goes on with the next ones: all have one buffer of the same type.
        self._write.dstSet, self._write.descriptorCount = self._made[0], len(places)
        lib.vkUpdateDescriptorSets(device, 1, self._write, 0, null)
        point = vk.VK_PIPELINE_BIND_POINT_COMPUTE
        lib.vkCmdBindDescriptorSets(commands, point, pipeline_layout, 0, 1, self._made, 0, null)

    def _allocate(self, layout: object, buffers: int) -> None:
        """Allocate the set `self._made[0]`."""
        while self._sets == 0 or self._buffers < buffers:
            self._next_pool(buffers)
        self._sets -= 1
        self._buffers -= buffers
        self._layouts[0] = layout
        self._wanted.descriptorPool = self._pools[self._used - 1][0]
        status = api().lib.vkAllocateDescriptorSets(self._device.handle, self._wanted, self._made)
        if status:
            raise DeviceError(f"'{self._device.name}' has no room for descriptors: Vulkan error {status}")

    def _next_pool(self, buffers: int) -> None:
        if self._used == len(self._pools):
            vk = api()
            count = max(BUFFERS, buffers)
            size = vk.VkDescriptorPoolSize(type=vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, descriptorCount=count)
            info = vk.VkDescriptorPoolCreateInfo(maxSets=SETS, pPoolSizes=[size])
            self._pools.append((vk.vkCreateDescriptorPool(self._device.handle, info, None), count))
        self._sets, self._buffers = SETS, self._pools[self._used][1]
        self._used += 1

    def reset(self) -> None:
        """Free all sets, of commands that have finished."""
        for pool, _ in self._pools[: self._used]:
            api().lib.vkResetDescriptorPool(self._device.handle, pool, 0)
        self._used = self._sets = self._buffers = 0

    def release(self) -> None:
        """Release everything."""
        for pool, _ in self._pools:
            api().vkDestroyDescriptorPool(self._device.handle, pool, None)
        self._pools.clear()
        self._used = self._sets = self._buffers = 0
