"""The worker process of `processes.py`: it compiles units until its input ends.

Messages are pickles preceded by their length: tasks arrive on standard input, answers go to what was standard output
when the process started (output of LLVM goes to standard error).
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import queue
import struct
import threading
from typing import IO, Any

from mirlo.runtime import system
from mirlo.runtime.frames import with_frame_space

IDLE_SECONDS = 60.0
"""Seconds without a task after which the process ends."""
RELEASE_SECONDS = 1.0
"""Seconds without a task after which the process releases the pages of the compiler's code."""
LENGTH = struct.Struct("<Q")


def send(stream: IO[bytes], message: object) -> None:
    """Write one message."""
    content = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(LENGTH.pack(len(content)) + content)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one message; raise EOFError at the end of the stream."""
    head = _exactly(stream, LENGTH.size)
    if not head:
        raise EOFError
    size = LENGTH.unpack(head)[0] if len(head) == LENGTH.size else 0
    content = _exactly(stream, size)
    if not size or len(content) < size:
        raise OSError("the other end went away within a message")
    return pickle.loads(content)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    """Read `size` bytes, or fewer at the end of the stream."""
    # One read of a pipe returns what it holds at the moment, which is less than a large message.
    content = bytearray()
    while len(content) < size:
        part = stream.read(size - len(content))
        if not part:
            break
        content += part
    return bytes(content)


@with_frame_space
def main() -> None:
    """Answer each task, the arguments of `compile_text`, with `(object file, None)` or `(None, error)`."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    tasks = os.fdopen(0, "rb", buffering=0)
    # Few cyclic objects are created by imports and units, and most of those are freed with the unit.
    gc.set_threshold(50_000)
    from mirlo.dialects.bindings import ir, new_context
    from mirlo.passes.registry import PassError
    from mirlo.targets.llvm.object_code import compile_text

    context = new_context()
    # Units hold upstream operations only; functions may have attributes of Mirlo, which have no meaning here.
    context.allow_unregistered_dialects = True
    coming: queue.SimpleQueue[Any] = queue.SimpleQueue()
    # The sender of a task blocks until it is read, and may only then read an answer.
    threading.Thread(target=_read_all, args=(tasks, coming), daemon=True).start()
    while True:
        task = _next_task(coming)
        if task is None:
            return
        try:
            with context:
                answer: tuple[bytes | None, str | None] = compile_text(*task), None
        except (PassError, ir.MLIRError) as error:
            answer = None, str(error)
        send(answers, answer)


def _next_task(coming: queue.SimpleQueue[Any]) -> Any:
    """Return the next task; None if there is none for long. A worker that waits has no code of LLVM in memory."""
    with contextlib.suppress(queue.Empty):
        return coming.get(timeout=RELEASE_SECONDS)
    system.release_code()
    with contextlib.suppress(queue.Empty):
        return coming.get(timeout=IDLE_SECONDS - RELEASE_SECONDS)
    return None


def _read_all(stream: IO[bytes], coming: queue.SimpleQueue[Any]) -> None:
    """Put each task into a queue, then None."""
    try:
        while True:
            coming.put(receive(stream))
    except (EOFError, OSError):
        coming.put(None)


if __name__ == "__main__":
    main()
