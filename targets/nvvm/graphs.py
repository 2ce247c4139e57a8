"""CUDA graphs of a model: the work of a call, recorded once per set of addresses and launched again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

from mirlo.targets.nvvm.device import Gpu, check

CACHED_GRAPHS = 8
"""Graphs kept per model, evicted least recently used first."""
_REMEMBERED_ADDRESSES = 64
"""Sets of addresses remembered after one use."""


class Graphs:
    """Recorded work by the addresses of its tensors."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.made: OrderedDict[Hashable, object] = OrderedDict()
        self._seen: OrderedDict[Hashable, None] = OrderedDict()

    def launch(self, key: Hashable, stream: int, work: Callable[[], None], at_once: bool = False) -> None:
        """Enqueue work on a stream: directly the first time, as a graph when it recurs or with `at_once`."""
        graph = self.made.get(key)
        if graph is None and not at_once and key not in self._seen:
            self._seen[key] = None
            while len(self._seen) > _REMEMBERED_ADDRESSES:
                self._seen.popitem(last=False)
            work()
            return
        if graph is None:
            graph = self.made[key] = self._capture(stream, work)
            while len(self.made) > CACHED_GRAPHS:
                _, oldest = self.made.popitem(last=False)
                check(self.gpu.cuda.cuGraphExecDestroy(oldest), "freeing a graph")
        self.made.move_to_end(key)
        check(self.gpu.cuda.cuGraphLaunch(graph, stream), "starting the model")

    def clear(self) -> None:
        """Discard all graphs, because memory has moved."""
        for graph in self.made.values():
            check(self.gpu.cuda.cuGraphExecDestroy(graph), "freeing a graph")
        self.made.clear()
        self._seen.clear()

    def _capture(self, stream: int, work: Callable[[], None]) -> object:
        cuda = self.gpu.cuda
        # In stricter modes a finalizer that frees unrelated memory would invalidate the capture.
        mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        check(cuda.cuStreamBeginCapture(stream, mode), "recording the model")
        try:
            work()
        except BaseException:
            status, unfinished = cuda.cuStreamEndCapture(stream)
            if status == cuda.CUresult.CUDA_SUCCESS:
                cuda.cuGraphDestroy(unfinished)
            raise
        graph = check(cuda.cuStreamEndCapture(stream), "recording the model")
        result = check(cuda.cuGraphInstantiate(graph, 0), "preparing the model")
        check(cuda.cuGraphDestroy(graph), "freeing a graph")
        return result
