"""Rows of a profile: an event before each."""

from __future__ import annotations

from mirlo.targets.nvvm.device import Gpu, check


class ProfileEvents:
    """Events in the work of a stream, one before each profile row."""

    def __init__(self, gpu: Gpu, stream: int) -> None:
        self._gpu = gpu
        self._stream = stream
        self._events: list[dict[str, float]] = []

    def reach(self, row: int) -> None:
        """Assign the stream's following work to this row."""
        while len(self._events) <= row:
            event = check(self._gpu.cuda.cuEventCreate(0), "making an event")
            check(self._gpu.cuda.cuEventRecord(event, self._stream), "recording an event")
            self._events.append(event)

    def times(self) -> list[float]:
        """Return the milliseconds from the first event to each, after the stream has finished; release the events."""
        cuda = self._gpu.cuda
        result = [float(check(cuda.cuEventElapsedTime(self._events[0], e), "reading an event")) for e in self._events]
        for event in self._events:
            check(cuda.cuEventDestroy(event), "freeing an event")
        self._events.clear()
        return result
