"""GPU memory: blocks that are reused across calls, and events that order their uses."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import field

from mirlo.runtime.device_array import CUDA
from mirlo.runtime.locks import make_lock
from mirlo.runtime.records import dataclass
from mirlo.targets.nvvm.device import CudaError, Gpu, check, gpu

SMALLEST = 512
"""Bytes of the smallest block; larger ones are powers of two up to `LARGE`, then multiples of it."""
LARGE = 1 << 21
PER_THREAD = 2
"""The per-thread default stream."""
_DISABLE_TIMING = 2


class Event:
    """A point in the work of a stream."""

    def __init__(self, on: Gpu, stream: int) -> None:
        self.gpu = on
        self._handle = check(on.cuda.cuEventCreate(_DISABLE_TIMING), "making an event")
        weakref.finalize(self, _drop_event, on, self._handle).atexit = False
        check(on.cuda.cuEventRecord(self._handle, on.cuda.CUstream(stream)), "recording an event")

    def hold(self, stream: int) -> None:
        """Make later work on a stream wait for this point."""
        check(self.gpu.cuda.cuStreamWaitEvent(self.gpu.cuda.CUstream(stream), self._handle, 0), "waiting for an event")

    def is_done(self) -> bool:
        """Return whether all work before it is finished."""
        (status,) = self.gpu.cuda.cuEventQuery(self._handle)
        return bool(status != self.gpu.cuda.CUresult.CUDA_ERROR_NOT_READY)

    def wait(self) -> None:
        """Block until all work before it is finished."""
        check(self.gpu.cuda.cuEventSynchronize(self._handle), "running the model")


@dataclass
class MemoryBlock:
    """GPU memory; wait for `events` before writing to it again."""

    address: int
    size: int
    events: list[tuple[int, Event]] = field(default_factory=list)
    """Each with the stream it was recorded on."""


class MemoryPool:
    """Blocks of one GPU, reused when they are free."""

    def __init__(self, on: Gpu) -> None:
        self.gpu = on
        self._lock = make_lock()
        self._idle: defaultdict[int, list[MemoryBlock]] = defaultdict(list)

    def take(self, size: int, stream: int) -> MemoryBlock:
        """Return a block for work on a stream, which waits for the block's previous users."""
        wanted = rounded(size)
        with self._lock:
            block = self._idle[wanted].pop() if self._idle[wanted] else None
        if block is None:
            return MemoryBlock(self._allocate(wanted), wanted)
        for used, event in block.events:
            if used != stream:
                event.hold(stream)
        block.events.clear()
        return block

    def release(self, block: MemoryBlock) -> None:
        """Return a block to the pool; later users wait for its events."""
        with self._lock:
            self._idle[block.size].append(block)

    def trim(self) -> None:
        """Free all unused blocks."""
        with self._lock:
            blocks = [block for row in self._idle.values() for block in row]
            self._idle.clear()
        for block in blocks:
            for _, event in block.events:
                event.wait()
            self.gpu.cuda.cuMemFree(block.address)

    @property
    def idle_bytes(self) -> int:
        """Return the bytes of unused blocks."""
        return sum(block.size for row in list(self._idle.values()) for block in row)

    def _allocate(self, size: int) -> int:
        try:
            return allocate(self.gpu, size)
        except CudaError:
            if not self.idle_bytes:
                raise
            self.trim()
            return allocate(self.gpu, size)


def rounded(size: int) -> int:
    """Return the block size for this many bytes."""
    if size <= SMALLEST:
        return SMALLEST
    if size <= LARGE:
        return 1 << (size - 1).bit_length()
    return -(-size // LARGE) * LARGE


def allocate(on: Gpu, size: int) -> int:
    """Allocate memory of a GPU."""
    return int(check(on.cuda.cuMemAlloc(max(size, 4)), f"reserving {size} bytes of the GPU's memory"))


def pool_of(on: Gpu) -> MemoryPool:
    """Return the pool of a GPU."""
    if not isinstance(on.pool, MemoryPool):
        on.pool = MemoryPool(on)
    return on.pool


def pool(number: int) -> MemoryPool:
    """Return the pool of the GPU with this number."""
    return pool_of(gpu(number))


class Written:
    """Memory that a model wrote; implements `mirlo.runtime.device_array.DeviceMemory`."""

    def __init__(self, on: Gpu, address: int, stream: int, owner: object) -> None:
        self.gpu, self.address, self.stream = on, address, stream
        self.device = (CUDA, on.number)
        self.streams = {stream}
        """Streams that are ordered after the write already."""
        self._owner = owner
        self._event: Event | None = None

    def is_written(self, event: Event, stream: int) -> None:
        """Record the event of the last write, and the stream of the write."""
        self._event = event
        self.streams.add(stream)

    def order_before_stream(self, stream: int) -> None:
        """Make work on a stream wait for the write; the memory is reused only after that work."""
        if stream in self.streams and stream != PER_THREAD:
            return
        self.streams.add(stream)
        with self.gpu.entered():
            assert self._event is not None
            self._event.hold(stream)

    def read(self, target: int, size: int) -> None:
        """Copy bytes to host memory."""
        with self.gpu.entered():
            assert self._event is not None
            self._event.wait()
            check(self.gpu.cuda.cuMemcpyDtoH(target, self.address, size), "copying an output")


def written_block(on: Gpu, block: MemoryBlock, stream: int, owner: object) -> Written:
    """Wrap an output block, which returns to the pool when it is deleted; `owner` has the stream."""
    result = Written(on, block.address, stream, owner)
    weakref.finalize(result, _release_after, on, block, result.streams, owner).atexit = False
    return result


def _release_after(on: Gpu, block: MemoryBlock, streams: set[int], keep: object) -> None:
    """Return a block to the pool, with an event on every stream that may use it."""
    try:
        with on.entered():
            block.events += [(stream, Event(on, stream)) for stream in streams]
    except CudaError:
        return  # The context is gone, and its memory with it.
    pool_of(on).release(block)


def _drop_event(on: Gpu, handle: Mapping[str, float]) -> None:
    on.cuda.cuEventDestroy(handle)
