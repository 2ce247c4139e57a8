"""Calls in which the host decides: the work between two reads is submitted together."""

from __future__ import annotations

import ctypes

from mirlo.targets.gpu.commands import Step, StepRange
from mirlo.targets.gpu.device_layout import Hazards, Pointers
from mirlo.targets.gpu.frames import CallRecord
from mirlo.targets.gpu.worker import StepWorker
from mirlo.targets.spirv.model import VulkanModel
from mirlo.targets.spirv.vulkan import DeviceBuffer

SMALL = 64
"""Bytes up to which a copy from or to the host shares memory with others."""


def run(model: VulkanModel, record: CallRecord, params: Pointers, profiled: bool) -> None:
    """Run one call; inputs are in the staging buffer, which holds the outputs afterwards."""
    worker = _Worker(model, record, params, profiled)
    try:
        if model.frames.run(record, worker.execute):
            worker.finish()
    finally:
        worker.release()


class _Worker(StepWorker):
    """Execute the steps of one call."""

    def __init__(
        self,
        model: VulkanModel,
        record: CallRecord,
        params: Pointers,
        profiled: bool,
    ) -> None:
        super().__init__(model.artifact, record, params)
        self._model = model
        self._device = model.device
        self._hazards = Hazards()
        self._made: list[DeviceBuffer] = []
        self._outputs: dict[int, tuple[int, int]] = {}
        self._look = self._buffer(SMALL, host=True)
        self._open = model.open_recording()
        self._row = -1
        self._rows = len(model.artifact.kernels) if profiled else -1
        model.copy_inputs(self._open)
        if profiled:
            model.pipelines.begin_stamps(self._open.commands, self._rows + 1)

    def _buffer(self, size: int, host: bool = False) -> DeviceBuffer:
        """Return memory that lives as long as this call."""
        result = self._device.buffer(size, host)
        self._made.append(result)
        return result

    def enqueue(self, step: Step) -> None:
        touched = self._model.touched(step)
        if self._rows >= 0:
            self._stamp(step["row"])
        elif self._hazards.must_wait(touched):
            self._open.barrier()
        self._model.record_step(self._open, step, touched)

    def _stamp(self, row: int) -> None:
        """Record a time stamp for each following profile row, after all previous work."""
        self._open.barrier()
        while self._row < min(row, self._rows):
            self._row += 1
            self._model.pipelines.stamp(self._open.commands, self._row)

    def _submit(self) -> None:
        """Submit everything recorded so far and wait."""
        self._open.end()
        try:
            self._open.run()
        finally:
            self._open.restart()
            self._hazards = Hazards()

    def fetch(self, where: StepRange, target: int, size: int) -> None:
        buffer, offset, _ = self._model.place(where)
        staging = self._look if size <= SMALL else self._buffer(size, host=True)
        self._open.barrier()
        self._open.copy((buffer, offset, size), (staging, 0, size))
        self._open.barrier()
        self._submit()
        assert staging.mapped is not None
        ctypes.memmove(target, staging.mapped, size)

    def put(self, where: StepRange, source: int, size: int) -> None:
        buffer, offset, _ = self._model.place(where)
        if size <= SMALL:
            staged = self._open.small(ctypes.string_at(source, size))
        else:
            staged = self._buffer(size, host=True), 0, size
            assert staged[0].mapped is not None
            ctypes.memmove(staged[0].mapped, source, size)
        self._open.barrier()
        self._open.copy(staged, (buffer, offset, size))
        self._open.barrier()

    def allocate(self, memory: int, number: int, size: int) -> None:
        self._model.late[memory] = self._buffer(size)
        if number >= 0:
            self._outputs[number] = (memory, size)

    def call(self, step: Step) -> None:
        if self._rows >= 0:
            self._stamp(step["row"])
        super().call(step)

    def finish(self) -> None:
        """Copy the outputs back, including those of data-dependent size."""
        if self._rows >= 0:
            self._stamp(self._rows)
        self._model.copy_outputs(self._open)
        self._submit()
        for number, (memory, size) in self._outputs.items():
            target = self._model.frames.allocate_output(self._record, number, size)
            if target and size:
                self.fetch(("late", memory, 0, size), target, size)

    def release(self) -> None:
        """Release the memory of the call."""
        self._open.end()
        self._model.close_recording(self._open)
        for buffer in self._made:
            self._device.free(buffer)
        self._model.late.clear()
