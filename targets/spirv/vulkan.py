"""A Vulkan device: memory, compute pipelines, command buffers. Independent of models."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from mirlo.runtime.errors import ArtifactError, DeviceLimit, NoDevice
from mirlo.runtime.locks import ReleasingLock
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from types import ModuleType

WAIT = 2**64 - 1
_KINDS = {2: 0, 1: 1, 3: 2, 4: 3, 0: 4}
"""Preference by kind of device: discrete, integrated, virtual, CPU, other."""


class DeviceError(ArtifactError):
    """No device can run the model, or the device failed."""

    error_code = "MIR0501"
    remedy = "Update the driver of Vulkan, or choose another device."


class NoVulkanDevice(DeviceError, NoDevice):
    """This machine has no device for the model, or no driver of one."""

    error_code = "MIR0502"
    remedy = "Install a driver of Vulkan; Mesa's `lavapipe` needs no GPU."


class EndedLoops(DeviceError, DeviceLimit):
    """Raised where the device ended the loops of a kernel early."""

    error_code = "MIR0510"
    remedy = "Use a GPU, or compile for another target."


@cache
def api() -> ModuleType:
    """Return the Vulkan loader of this machine."""
    try:
        import vulkan
    except ImportError as error:
        raise NoVulkanDevice(
            "target 'spirv' runs through the package 'vulkan', which is not installed: pip install 'mirlo[vulkan]'"
        ) from error
    except OSError as error:
        raise NoVulkanDevice(
            f"this machine has no Vulkan loader ({error}): install the driver of its GPU, or a software device "
            "(on Debian: apt install mesa-vulkan-drivers libvulkan1)"
        ) from error
    result: ModuleType = vulkan
    return result


@dataclass
class DeviceBuffer:
    """Memory of the device; `mapped` is its address in this process, if it has one."""

    handle: object
    memory: object
    size: int
    mapped: int | None
    number: int = 0
    """Its handle as an integer."""
    local: bool = False
    """Whether it is device-local memory."""
    keep: object = None


class VulkanDevice:
    """One device with one queue. Only one thread at a time may call its methods: hold `lock`."""

    def __init__(self, number: int = 0) -> None:
        vk = api()
        self.process = os.getpid()
        """The process that opened it: forks have no threads of the driver, and must not use it."""
        self.lock = ReleasingLock()
        self._instance = self._make_instance(vk)
        devices = vk.vkEnumeratePhysicalDevices(self._instance)
        if not devices:
            raise NoVulkanDevice("Vulkan has no device on this machine: install the driver of its GPU")
        if not 0 <= number < len(devices):
            raise DeviceError(f"there is no Vulkan device {number}: this machine has {len(devices)}, counted from 0")
        devices = sorted(devices, key=lambda d: _KINDS.get(vk.vkGetPhysicalDeviceProperties(d).deviceType, 9))
        self.physical = devices[number]
        self.properties = vk.vkGetPhysicalDeviceProperties(self.physical)
        self.name: str = self.properties.deviceName
        self.limits = self.properties.limits
        families = vk.vkGetPhysicalDeviceQueueFamilyProperties(self.physical)
        able = [i for i, family in enumerate(families) if family.queueFlags & vk.VK_QUEUE_COMPUTE_BIT]
        if not able:
            raise DeviceError(f"the device '{self.name}' cannot compute")
        self._family = able[0]
        self.has_timestamps = bool(families[self._family].timestampValidBits)
        self.features = _features(vk, self.physical)
        self.handle = self._make_device(vk)
        self._queue = vk.vkGetDeviceQueue(self.handle, self._family, 0)
        again = vk.VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT
        self._pool = vk.vkCreateCommandPool(
            self.handle, vk.VkCommandPoolCreateInfo(flags=again, queueFamilyIndex=self._family), None
        )
        self._fence = vk.vkCreateFence(self.handle, vk.VkFenceCreateInfo(), None)
        self._fences = vk.ffi.new("VkFence[1]", [self._fence])
        self._memory = vk.vkGetPhysicalDeviceMemoryProperties(self.physical)
        self._structures = _Structures(vk)

    @staticmethod
    def _make_instance(vk: ModuleType) -> object:
        application = vk.VkApplicationInfo(
            pApplicationName="mirlo", applicationVersion=1, pEngineName="mirlo", engineVersion=1,
            apiVersion=vk.VK_MAKE_VERSION(1, 2, 0),
        )  # fmt: skip
        try:
            return vk.vkCreateInstance(vk.VkInstanceCreateInfo(pApplicationInfo=application), None)
        except vk.VkError as error:
            raise DeviceError(
                f"Vulkan does not start ({type(error).__name__}): install the driver of the GPU, or a software device "
                "(on Debian: apt install mesa-vulkan-drivers)"
            ) from error

    def _make_device(self, vk: ModuleType) -> object:
        core = vk.VkPhysicalDeviceFeatures(
            shaderFloat64="Float64" in self.features, shaderInt64="Int64" in self.features,
            shaderInt16="Int16" in self.features,
        )  # fmt: skip
        small = vk.VkPhysicalDeviceShaderFloat16Int8Features(
            shaderFloat16="Float16" in self.features, shaderInt8="Int8" in self.features
        )
        bytes_ = vk.VkPhysicalDevice8BitStorageFeatures(
            pNext=small, storageBuffer8BitAccess="StorageBuffer8BitAccess" in self.features
        )
        halves = vk.VkPhysicalDevice16BitStorageFeatures(
            pNext=bytes_, storageBuffer16BitAccess="StorageBuffer16BitAccess" in self.features
        )
        queue = vk.VkDeviceQueueCreateInfo(queueFamilyIndex=self._family, queueCount=1, pQueuePriorities=[1.0])
        info = vk.VkDeviceCreateInfo(pNext=halves, pQueueCreateInfos=[queue], pEnabledFeatures=core)
        return vk.vkCreateDevice(self.physical, info, None)

    # Memory

    def buffer(self, size: int, host: bool = False) -> DeviceBuffer:
        """Allocate memory; mapped with `host`, otherwise only if mapping costs nothing."""
        vk = api()
        size = whole_words(size)
        usage = (
            vk.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT
            | vk.VK_BUFFER_USAGE_TRANSFER_SRC_BIT
            | vk.VK_BUFFER_USAGE_TRANSFER_DST_BIT
        )
        info = vk.VkBufferCreateInfo(size=size, usage=usage, sharingMode=vk.VK_SHARING_MODE_EXCLUSIVE)
        try:
            handle = vk.vkCreateBuffer(self.handle, info, None)
        except vk.VkError as error:
            raise DeviceError(f"'{self.name}' has no buffers of {size} bytes: {type(error).__name__}") from error
        wanted = vk.vkGetBufferMemoryRequirements(self.handle, handle)
        kind, visible, local = self._kind(wanted.memoryTypeBits, host)
        try:
            memory = vk.vkAllocateMemory(
                self.handle, vk.VkMemoryAllocateInfo(allocationSize=wanted.size, memoryTypeIndex=kind), None
            )
        except vk.VkError as error:
            vk.vkDestroyBuffer(self.handle, handle, None)
            raise DeviceError(f"'{self.name}' has no room for {size} bytes: {type(error).__name__}") from error
        vk.vkBindBufferMemory(self.handle, handle, memory, 0)
        address = view = None
        if visible:
            view = vk.vkMapMemory(self.handle, memory, 0, size, 0)
            address = ctypes.addressof(ctypes.c_char.from_buffer(view))
        number = int(vk.ffi.cast("uintptr_t", handle))
        return DeviceBuffer(handle, memory, size, address, number, local, view)

    def _kind(self, allowed: int, host: bool) -> tuple[int, bool, bool]:
        """Return a memory type, whether it is mapped, and whether it is device-local."""
        vk = api()
        local = vk.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
        reach = vk.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | vk.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
        cached = vk.VK_MEMORY_PROPERTY_HOST_CACHED_BIT
        order = [local | reach | cached, reach | cached, reach] if host else [local | reach, local, 0]
        flags = [self._memory.memoryTypes[i].propertyFlags for i in range(self._memory.memoryTypeCount)]
        for wanted in order:
            for i, flag in enumerate(flags):
                if allowed >> i & 1 and flag & wanted == wanted:
                    return i, flag & reach == reach, bool(flag & local)
        raise DeviceError(f"'{self.name}' has no memory for buffers")

    def free(self, buffer: DeviceBuffer) -> None:
        """Free memory that is no longer used."""
        vk = api()
        vk.vkDestroyBuffer(self.handle, buffer.handle, None)
        vk.vkFreeMemory(self.handle, buffer.memory, None)

    # Commands

    def commands(self) -> object:
        """Return a new command buffer, open for recording."""
        vk = api()
        result = vk.vkAllocateCommandBuffers(
            self.handle,
            vk.VkCommandBufferAllocateInfo(
                commandPool=self._pool, level=vk.VK_COMMAND_BUFFER_LEVEL_PRIMARY, commandBufferCount=1
            ),
        )[0]
        self.restart(result)
        return result

    def restart(self, commands: object) -> None:
        """Open a command buffer for recording, without what was recorded before."""
        api().vkBeginCommandBuffer(commands, self._structures.begin)

    def barrier(self, commands: object) -> None:
        """Make earlier writes visible to later shaders, copies and the host."""
        structures, vk = self._structures, api()
        null = vk.ffi.NULL
        vk.lib.vkCmdPipelineBarrier(
            commands, structures.work, structures.after, 0, 1, structures.barrier, 0, null, 0, null
        )

    def copy(self, commands: object, source: DeviceBuffer, at: int, target: DeviceBuffer, to: int, size: int) -> None:
        """Record a copy of bytes."""
        region = self._structures.region
        region.srcOffset, region.dstOffset, region.size = at, to, size
        api().lib.vkCmdCopyBuffer(commands, source.handle, target.handle, 1, region)

    def run(self, commands: object) -> None:
        """Submit a recorded command buffer and wait until it has finished."""
        lib, structures = api().lib, self._structures
        structures.submitted[0] = commands
        self._check(lib.vkQueueSubmit(self._queue, 1, structures.submit, self._fence))
        self._check(lib.vkWaitForFences(self.handle, 1, self._fences, True, WAIT))
        self._check(lib.vkResetFences(self.handle, 1, self._fences))

    def _check(self, status: int) -> None:
        """Raise an error if a call failed."""
        if status:
            raise DeviceError(f"the device '{self.name}' failed while it ran commands: Vulkan error {status}")

    def drop(self, commands: Sequence[object]) -> None:
        """Free command buffers."""
        if commands:
            api().vkFreeCommandBuffers(self.handle, self._pool, len(commands), commands)


class _Structures:
    """Structures of frequent calls: they are made once, because the bindings take long to make one."""

    def __init__(self, vk: ModuleType) -> None:
        ffi = vk.ffi
        writes = vk.VK_ACCESS_SHADER_WRITE_BIT | vk.VK_ACCESS_TRANSFER_WRITE_BIT
        reads = vk.VK_ACCESS_SHADER_READ_BIT | vk.VK_ACCESS_TRANSFER_READ_BIT
        self.work = vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | vk.VK_PIPELINE_STAGE_TRANSFER_BIT
        self.after = self.work | vk.VK_PIPELINE_STAGE_HOST_BIT
        self.barrier = ffi.new("VkMemoryBarrier*")
        self.barrier.sType = vk.VK_STRUCTURE_TYPE_MEMORY_BARRIER
        self.barrier.srcAccessMask = writes
        self.barrier.dstAccessMask = writes | reads | vk.VK_ACCESS_HOST_READ_BIT
        self.region = ffi.new("VkBufferCopy*")
        self.begin = ffi.new("VkCommandBufferBeginInfo*")
        self.begin.sType = vk.VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO
        self.submitted = ffi.new("VkCommandBuffer[1]")
        self.submit = ffi.new("VkSubmitInfo*")
        self.submit.sType = vk.VK_STRUCTURE_TYPE_SUBMIT_INFO
        self.submit.commandBufferCount, self.submit.pCommandBuffers = 1, self.submitted


def whole_words(size: int) -> int:
    """Return bytes rounded up to words, of which kernels may access any part through the whole."""
    return max(-(-size // 4) * 4, 4)


def _features(vk: ModuleType, physical: object) -> frozenset[str]:
    """Return the SPIR-V capabilities of the device among those that kernels use."""
    subgroup = vk.VkPhysicalDeviceSubgroupProperties()
    properties = vk.VkPhysicalDeviceProperties2(pNext=subgroup)
    small = vk.VkPhysicalDeviceShaderFloat16Int8Features()
    bytes_ = vk.VkPhysicalDevice8BitStorageFeatures(pNext=small)
    halves = vk.VkPhysicalDevice16BitStorageFeatures(pNext=bytes_)
    info = vk.VkPhysicalDeviceFeatures2(pNext=halves)
    vk.vkGetPhysicalDeviceFeatures2(physical, info)
    vk.vkGetPhysicalDeviceProperties2(physical, properties)
    core = info.features
    has = {
        "Shader": True, "Float64": core.shaderFloat64, "Int64": core.shaderInt64, "Int16": core.shaderInt16,
        "Float16": small.shaderFloat16, "Int8": small.shaderInt8,
        "StorageBuffer8BitAccess": bytes_.storageBuffer8BitAccess,
        "StorageBuffer16BitAccess": halves.storageBuffer16BitAccess,
        "GroupNonUniform": subgroup.supportedOperations & 1, "GroupNonUniformArithmetic":
        subgroup.supportedOperations & 4, "GroupNonUniformShuffle": subgroup.supportedOperations & 16,
    }  # fmt: skip
    return frozenset(name for name, present in has.items() if present)


def device(number: int = 0) -> VulkanDevice:
    """Return the device with this number; by default the one that models run on, a discrete GPU if there is one."""
    return _device(number, os.getpid())


@cache
def _device(number: int, process: int) -> VulkanDevice:
    """Return a device of this process: a fork opens its own, as the driver's threads stay in the parent."""
    return VulkanDevice(number)
