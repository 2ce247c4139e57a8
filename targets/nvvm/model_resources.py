"""GPU resources of a model, released when neither it nor its results are in use."""

from __future__ import annotations

import weakref
from collections.abc import Hashable

from mirlo.targets.nvvm.device import CudaError, Gpu, check
from mirlo.targets.nvvm.graphs import Graphs
from mirlo.targets.nvvm.memory import allocate

NON_BLOCKING = 1


class ModelResources:
    """GPU resources of a model, released when neither it nor its results are in use."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.memories: list[int] = []
        self.pinned: list[int] = []
        self.modules: list[int] = []
        self.stream = check(gpu.cuda.cuStreamCreate(NON_BLOCKING), "making a stream")
        self.graphs = Graphs(gpu)
        held = (self.stream, self.memories, self.pinned, self.modules, self.graphs.made)
        weakref.finalize(self, _release, gpu, *held).atexit = False

    def allocate(self, size: int) -> int:
        """Allocate memory that lives as long as the model."""
        result = allocate(self.gpu, size)
        self.memories.append(result)
        return result

    def pin(self, size: int) -> int:
        """Allocate pinned host memory, which the GPU copies asynchronously."""
        result = int(check(self.gpu.cuda.cuMemHostAlloc(max(size, 4), 0), "reserving pinned memory"))
        self.pinned.append(result)
        return result

    def free(self, *memories: int, pinned: int) -> None:
        """Free memory that is no longer used."""
        for address in memories:
            self.memories.remove(address)
            check(self.gpu.cuda.cuMemFree(address), "freeing memory")
        self.pinned.remove(pinned)
        check(self.gpu.cuda.cuMemFreeHost(pinned), "freeing pinned memory")


def _release(
    gpu: Gpu, stream: int, memories: list[int], pinned: list[int], modules: list[int], graphs: dict[Hashable, object]
) -> None:
    """Release a model's resources; errors here were reported before."""
    cuda = gpu.cuda
    try:
        with gpu.entered():
            cuda.cuStreamSynchronize(stream)
            for graph in graphs.values():
                cuda.cuGraphExecDestroy(graph)
            for address in memories:
                cuda.cuMemFree(address)
            for address in pinned:
                cuda.cuMemFreeHost(address)
            for module in modules:
                cuda.cuModuleUnload(module)
            cuda.cuStreamDestroy(stream)
    except CudaError:
        return
