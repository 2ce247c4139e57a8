"""Recorded commands with everything that must outlive them: descriptors, and scalar arguments of kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.targets.spirv.descriptors import BufferRange, DescriptorSets
from mirlo.targets.spirv.pipelines import Pipelines, shown
from mirlo.targets.spirv.vulkan import DeviceBuffer, EndedLoops, VulkanDevice, api

if TYPE_CHECKING:
    from mirlo.targets.gpu.commands import Step

CHUNK = 16 << 10
"""Bytes of a buffer for scalars and small data."""
RANGE_ALIGNMENT = 64
"""Alignment of bound ranges, in bytes."""
REPORT = (2, 0)
"""The report of a launch, after its scalars: iterations of the kernel's last loop, and whether the device ended it."""


class Recording:
    """A command buffer that is filled, and run once or repeatedly."""

    def __init__(self, device: VulkanDevice, pipelines: Pipelines) -> None:
        self.device = device
        self._pipelines = pipelines
        self.commands = device.commands()
        self._descriptors = DescriptorSets(device)
        self._chunks: list[DeviceBuffer] = []
        self._chunk = -1
        """The number of the chunk in use."""
        self._used = CHUNK
        self._reports: list[tuple[str, ctypes.c_int32]] = []
        """Launched kernels, and whether the device ended their loops."""

    def small(self, data: bytes) -> BufferRange:
        """Return a place with these few bytes, for commands to read."""
        if self._used + len(data) > CHUNK:
            self._chunk += 1
            self._used = 0
            if self._chunk == len(self._chunks):
                self._chunks.append(self.device.buffer(CHUNK, host=True))
        chunk = self._chunks[self._chunk]
        assert chunk.mapped is not None and len(data) <= CHUNK
        ctypes.memmove(chunk.mapped + self._used, data, len(data))
        place = (chunk, self._used, len(data))
        self._used += -(-max(len(data), 1) // RANGE_ALIGNMENT) * RANGE_ALIGNMENT
        return place

    def dispatch(self, step: Step, places: Sequence[BufferRange]) -> None:
        """Record a launch on these buffers; its scalars come last, in a buffer of their own."""
        numbers = [value for value in step["arguments"] if isinstance(value, int)]
        bound = list(places)
        reports = self._pipelines.reports(step["kernel"])
        if reports:
            numbers += REPORT
        if numbers:
            words = (ctypes.c_int32 * len(numbers))(*numbers)
            chunk, at, size = place = self.small(bytes(words))
            bound.append(place)
            if reports:
                assert chunk.mapped is not None
                is_ended = ctypes.c_int32.from_address(chunk.mapped + at + size - ctypes.sizeof(ctypes.c_int32))
                self._reports.append((step["kernel"], is_ended))
        self._pipelines.dispatch(self.commands, step, bound, self._descriptors)

    def copy(self, source: BufferRange, target: BufferRange) -> None:
        """Record a copy."""
        self.device.copy(self.commands, source[0], source[1], target[0], target[1], source[2])

    def barrier(self) -> None:
        """Make earlier writes visible to later commands."""
        self.device.barrier(self.commands)

    def end(self) -> None:
        """End recording."""
        api().vkEndCommandBuffer(self.commands)

    def run(self) -> None:
        """Run the commands, and wait until they have finished."""
        self.device.run(self.commands)
        ended = [kernel for kernel, is_ended in self._reports if is_ended.value]
        for _, is_ended in self._reports:
            is_ended.value = 0
        if ended:
            raise EndedLoops(
                f"the device '{self.device.name}' ended loops of '{shown(ended[0])}' before their last iteration: "
                "Mesa's software device does so after 65535 iterations of a thread. Use a GPU, or compile for another "
                "target"
            )

    def restart(self) -> None:
        """Record from the beginning, after the commands have finished."""
        self._reports.clear()
        self._descriptors.reset()
        self._chunk, self._used = -1, CHUNK
        self.device.restart(self.commands)

    def release(self) -> None:
        """Release everything, after the commands have finished."""
        self.device.drop([self.commands])
        self._descriptors.release()
        for chunk in self._chunks:
            self.device.free(chunk)
        self._chunks.clear()
