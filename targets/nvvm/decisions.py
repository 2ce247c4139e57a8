"""Calls in which the host decides: launches and copies are enqueued before each read."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.targets.gpu.commands import Step, StepRange
from mirlo.targets.gpu.device_layout import Pointers
from mirlo.targets.gpu.frames import CallRecord
from mirlo.targets.gpu.worker import StepWorker
from mirlo.targets.nvvm.device import check
from mirlo.targets.nvvm.memory import Event, MemoryBlock, pool_of
from mirlo.targets.nvvm.model import CudaModel
from mirlo.targets.nvvm.rows import ProfileEvents


def run(
    model: CudaModel, tensors: Sequence[int], record: CallRecord, params: Pointers, rows: ProfileEvents | None
) -> dict[int, tuple[MemoryBlock, int]]:
    """Run one call on these tensors; return blocks and sizes of outputs with data-dependent sizes."""
    worker = _Worker(model, tensors, record, params, rows)
    try:
        model.frames.run(record, worker.execute)
        if rows is not None:
            rows.reach(len(model.artifact.kernels))
        return worker.outputs()
    finally:
        worker.release()


class _Worker(StepWorker):
    """Execute the steps of one call."""

    def __init__(
        self, model: CudaModel, tensors: Sequence[int], record: CallRecord, params: Pointers, rows: ProfileEvents | None
    ) -> None:
        super().__init__(model.artifact, record, params)
        self._model = model
        self._cuda = model.gpu.cuda
        self._tensors = tensors
        self._rows = rows
        self._blocks: list[MemoryBlock] = []
        self._outputs: dict[int, tuple[MemoryBlock, int]] = {}

    def _row(self, step: Step) -> None:
        if self._rows is not None:
            self._rows.reach(step["row"])

    def enqueue(self, step: Step) -> None:
        self._row(step)
        self._model.step(step, self._tensors)

    def fetch(self, where: StepRange, target: int, size: int) -> None:
        check(self._cuda.cuStreamSynchronize(self._model.stream), "running the model")
        check(self._cuda.cuMemcpyDtoH(target, self._model.place(where, self._tensors), size), "reading a tensor")

    def put(self, where: StepRange, source: int, size: int) -> None:
        # Work enqueued earlier may still read the old bytes.
        check(self._cuda.cuStreamSynchronize(self._model.stream), "running the model")
        check(self._cuda.cuMemcpyHtoD(self._model.place(where, self._tensors), source, size), "writing a tensor")
        check(self._cuda.cuCtxSynchronize(), "writing a tensor")

    def allocate(self, memory: int, number: int, size: int) -> None:
        block = pool_of(self._model.gpu).take(size, int(self._model.stream))
        self._model.late[memory] = block.address
        if number >= 0:
            self._outputs[number] = (block, size)
        else:
            self._blocks.append(block)

    def call(self, step: Step) -> None:
        self._row(step)
        if step["call"] in self._model.frames.on_device:
            self._model.step(step, self._tensors)
        else:
            super().call(step)

    def outputs(self) -> dict[int, tuple[MemoryBlock, int]]:
        """Return the memory that becomes the caller's once the stream is done with it."""
        if self._outputs:
            check(self._cuda.cuStreamSynchronize(self._model.stream), "running the model")
        return self._outputs

    def release(self) -> None:
        """Release the memory of the call."""
        stream = int(self._model.stream)
        for block in self._blocks:
            block.events.append((stream, Event(self._model.gpu, stream)))
            pool_of(self._model.gpu).release(block)
        self._model.late.clear()
