"""Memory of a GPU: blocks that go from call to call, and events that say when they may."""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from mirlo.runtime.device_array import CUDA
from mirlo.targets.nvvm.device import CudaError, Gpu, check, gpu

SMALLEST = 512
"""Bytes of the smallest block; larger ones are powers of two up to `LARGE`, then multiples of it."""
LARGE = 1 << 21
PER_THREAD = 2
"""A stream that is another one in every thread."""
_DISABLE_TIMING = 2


class Event:
    """A place in the work of a stream."""

    def __init__(self, on: Gpu, stream: int) -> None:
        self.gpu = on
        self._handle = check(on.cuda.cuEventCreate(_DISABLE_TIMING), "making an event")
        weakref.finalize(self, _drop_event, on, self._handle).atexit = False
        check(on.cuda.cuEventRecord(self._handle, on.cuda.CUstream(stream)), "recording an event")

    def hold(self, stream: int) -> None:
        """Let what is given to a stream from now on wait for this place."""
        check(self.gpu.cuda.cuStreamWaitEvent(self.gpu.cuda.CUstream(stream), self._handle, 0), "waiting for an event")

    def is_done(self) -> bool:
        """Whether all before it is done."""
        (status,) = self.gpu.cuda.cuEventQuery(self._handle)
        return status != self.gpu.cuda.CUresult.CUDA_ERROR_NOT_READY

    def wait(self) -> None:
        """Wait here until all before it is done."""
        check(self.gpu.cuda.cuEventSynchronize(self._handle), "running the model")


@dataclass
class Block:
    """Memory of a GPU; `events` are to be waited for before it is written again."""

    address: int
    size: int
    events: list[tuple[int, Event]] = field(default_factory=list)
    """Each with the stream whose work it is a place in."""


class Pool:
    """Blocks of one GPU, handed out again when nobody uses them any more."""

    def __init__(self, on: Gpu) -> None:
        self.gpu = on
        self._lock = threading.RLock()
        self._idle: defaultdict[int, list[Block]] = defaultdict(list)

    def take(self, size: int, stream: int) -> Block:
        """A block for work on a stream, which waits for those that used it before."""
        wanted = rounded(size)
        with self._lock:
            block = self._idle[wanted].pop() if self._idle[wanted] else None
        if block is None:
            return Block(self._allocate(wanted), wanted)
        for used, event in block.events:
            if used != stream:
                event.hold(stream)
        block.events.clear()
        return block

    def give_back(self, block: Block) -> None:
        """Keep a block for others, who wait for its events."""
        with self._lock:
            self._idle[block.size].append(block)

    def trim(self) -> None:
        """Free all blocks that nobody uses."""
        with self._lock:
            blocks = [block for row in self._idle.values() for block in row]
            self._idle.clear()
        for block in blocks:
            for _, event in block.events:
                event.wait()
            self.gpu.cuda.cuMemFree(block.address)

    @property
    def idle_bytes(self) -> int:
        """Bytes of the blocks that nobody uses."""
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
    """The size of the block for so many bytes."""
    if size <= SMALLEST:
        return SMALLEST
    if size <= LARGE:
        return 1 << (size - 1).bit_length()
    return -(-size // LARGE) * LARGE


def allocate(on: Gpu, size: int) -> int:
    """New memory of a GPU."""
    return int(check(on.cuda.cuMemAlloc(max(size, 4)), f"reserving {size} bytes of the GPU's memory"))


def pool_of(on: Gpu) -> Pool:
    """The pool of a GPU."""
    if on.pool is None:
        on.pool = Pool(on)
    made: Pool = on.pool
    return made


def pool(number: int) -> Pool:
    """The pool of the GPU of a number."""
    return pool_of(gpu(number))


class Written:
    """Memory that a model wrote: `mirlo.runtime.device_array.DeviceMemory`."""

    def __init__(self, on: Gpu, address: int, stream: int, owner: Any) -> None:
        self.gpu, self.address, self.stream = on, address, stream
        self.device = (CUDA, on.number)
        self.streams = {stream}
        """Streams that need not wait any more."""
        self._owner = owner
        self._event: Event | None = None

    def is_written(self, event: Event, stream: int) -> None:
        """The event of its last write, and a stream that waits for it already."""
        self._event = event
        self.streams.add(stream)

    def hand_to(self, stream: int) -> None:
        """Let work on a stream wait until the memory is written; it is not used again before that work is done."""
        if stream in self.streams and stream != PER_THREAD:
            return
        self.streams.add(stream)
        with self.gpu.entered():
            assert self._event is not None
            self._event.hold(stream)

    def read(self, target: int, size: int) -> None:
        """Copy bytes to memory of the CPU."""
        with self.gpu.entered():
            assert self._event is not None
            self._event.wait()
            check(self.gpu.cuda.cuMemcpyDtoH(target, self.address, size), "copying an output")


def written_block(on: Gpu, block: Block, stream: int, owner: Any) -> Written:
    """An output in a block, which goes back to the pool when nobody holds it; `owner` has the stream."""
    made = Written(on, block.address, stream, owner)
    weakref.finalize(made, _give_back, on, block, made.streams, owner).atexit = False
    return made


def _give_back(on: Gpu, block: Block, streams: set[int], keep: Any) -> None:
    """Put a block into the pool, with a place in the work of every stream that may use it."""
    try:
        with on.entered():
            block.events += [(stream, Event(on, stream)) for stream in streams]
    except CudaError:
        return  # The context is gone, and its memory with it.
    pool_of(on).give_back(block)


def _drop_event(on: Gpu, handle: Any) -> None:
    on.cuda.cuEventDestroy(handle)
