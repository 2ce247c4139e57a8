"""Rows of a profile: an event before each."""

from __future__ import annotations

from mirlo.targets.nvvm.device import Gpu, check


class ProfileEvents:
    """Events in the work of a stream, one before each profile row."""

    def __init__(self, gpu: Gpu, stream: int, in_graph: bool = False) -> None:
        self._gpu = gpu
        self._stream = stream
        self._in_graph = in_graph
        """Whether they are recorded in a graph, to be read after it has run."""
        self._events: list[dict[str, float]] = []

    def reach(self, row: int) -> None:
        """Assign the stream's following work to this row."""
        while len(self._events) <= row:
            event = check(self._gpu.cuda.cuEventCreate(0), "making an event")
            self._record(event)
            self._events.append(event)

    def _record(self, event: object) -> None:
        cuda = self._gpu.cuda
        if self._in_graph:
            flags = int(cuda.CUevent_record_flags.CU_EVENT_RECORD_EXTERNAL)
            check(cuda.cuEventRecordWithFlags(event, self._stream, flags), "recording an event")
        else:
            check(cuda.cuEventRecord(event, self._stream), "recording an event")

    def times(self) -> list[float]:
        """Return the milliseconds from the first event to each, after the stream has finished; release the events."""
        cuda = self._gpu.cuda
        result = [float(check(cuda.cuEventElapsedTime(self._events[0], e), "reading an event")) for e in self._events]
        for event in self._events:
            check(cuda.cuEventDestroy(event), "freeing an event")
        self._events.clear()
        return result
