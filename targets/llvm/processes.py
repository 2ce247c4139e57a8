"""Worker processes that compile kernels in parallel: MLIR's bindings hold the GIL, so threads would not.

Where this process has one thread, as commands have, they are forks of it, which have all modules loaded. Otherwise a
fork would copy locks that other threads hold, so they are started with the interpreter, which takes 0.35 seconds of
processor time for imports. They wait a minute for the next model, and end with the process that started them.

A worker compiles units until its input ends. Messages are pickles preceded by their length: tasks arrive on standard
input, answers go to what was standard output when the process started (output of LLVM goes to standard error).
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import pickle
import queue
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import field
from pathlib import Path
from typing import IO, Any

from mirlo.dialects.bindings import ir, new_context
from mirlo.passes.registry import PassError
from mirlo.runtime import system
from mirlo.runtime.fresh_process import fresh_command
from mirlo.runtime.interpreter import with_frame_space
from mirlo.runtime.locks import make_lock
from mirlo.runtime.processes import ForkedProcess, after_fork, end_blas_threads, is_single_threaded, signal_name
from mirlo.runtime.records import dataclass
from mirlo.runtime.system import available_cores
from mirlo.targets.host.llvm_ir import llvmlite
from mirlo.targets.llvm.machine_code import CodeSettings
from mirlo.targets.llvm.object_code import EntryInterface, compile_text

MOST = 8
"""Most worker processes: more of them only wait for the largest kernel."""
LEAST_CHARACTERS = 150_000
"""Fewest characters of units, about two microseconds each to compile, for which waiting for a worker to start pays."""
AHEAD = 2
"""Tasks that a worker has queued at a time."""


@dataclass(frozen=True)
class CompileTask:
    """A unit to compile. Tasks with equal text are equal."""

    name: str = field(compare=False)
    text: str
    entry: EntryInterface | None


@dataclass
class _Process:
    """A worker process, used by one thread at a time."""

    popen: subprocess.Popen[bytes] | ForkedProcess
    lock: threading.RLock = field(default_factory=make_lock)

    def send_task(self, task: CompileTask, settings: CodeSettings) -> None:
        """Send a task; `receive_results` returns the results in the same order."""
        try:
            assert self.popen.stdin is not None
            send(self.popen.stdin, (task.text, settings, task.entry))
        except OSError:
            raise self._ended(task) from None

    def receive_results(self, task: CompileTask) -> bytes:
        try:
            assert self.popen.stdout is not None
            answer: tuple[bytes | None, str] = receive(self.popen.stdout)
        except (OSError, EOFError):
            raise self._ended(task) from None
        content, problem = answer
        if content is None:
            raise PassError(f"@{task.name}: {problem}")
        return content

    def _ended(self, task: CompileTask) -> Exception:
        code = self.popen.wait()
        return _WorkerExited() if code == 0 else PassError(f"the process that compiled @{task.name} ended {_how(code)}")

    def is_alive(self) -> bool:
        return self.popen.poll() is None


class _WorkerExited(Exception):
    """Raised if a worker has ended after its idle time."""


_processes: list[_Process] = []
_lock = make_lock()


def helpers(jobs: int | None) -> int:
    """Return the number of workers that a compilation may use; `jobs` counts this process too."""
    # If Python is embedded in another program, sys.executable is that program.
    if not sys.executable or not Path(sys.executable).name.lower().startswith("python"):
        return 0
    wanted = min(available_cores(), MOST) if jobs is None else jobs
    return max(0, min(wanted, 64) - 1)


def worker_ids() -> list[int]:
    """Return the process numbers of the workers that run."""
    with _lock:
        return [process.popen.pid for process in _processes if process.is_alive()]


def compile_all(
    tasks: Sequence[CompileTask],
    settings: CodeSettings,
    jobs: int | None = None,
    while_compiling: Callable[[], None] | None = None,
    lowered: dict[object, str] | None = None,
) -> list[bytes]:
    """Compile all tasks, the longest first, and return the object files.

    Workers compile and, after `while_compiling`, this process does too. It keeps LLVM IR in `lowered`.
    """
    count = min(helpers(jobs), len(tasks) - 1)
    if jobs is None and count > 0 and not _ready():
        count = count if sum(len(task.text) for task in tasks) >= LEAST_CHARACTERS else 0
    return Compilation(settings, count, lowered).finish(tasks, while_compiling)


class Compilation:
    """Tasks that worker processes compile as they are added; this process joins when all of them are known."""

    def __init__(self, settings: CodeSettings, helpers: int, lowered: dict[object, str] | None = None) -> None:
        self.settings = settings
        self._lowered = lowered
        self._waiting: deque[CompileTask] = deque()
        self._taken: set[CompileTask] = set()
        """The tasks that workers have, or had."""
        self._done: dict[CompileTask, bytes] = {}
        self._failures: dict[CompileTask, Exception] = {}
        self._wanted: Collection[CompileTask] | None = None
        """The tasks whose code is needed, once all are known."""
        self._changed = threading.Condition()
        self._processes = _running(helpers) if helpers > 0 else []
        self._feeders = [
            threading.Thread(target=self._work_there, args=(process,), daemon=True) for process in self._processes
        ]
        for feeder in self._feeders:
            feeder.start()

    @property
    def has_workers(self) -> bool:
        """Return whether a worker takes tasks."""
        return any(feeder.is_alive() for feeder in self._feeders)

    def add(self, task: CompileTask) -> None:
        """Add a task for the workers, which compile tasks in order."""
        with self._changed:
            self._waiting.append(task)
            self._changed.notify()

    def finish(self, tasks: Sequence[CompileTask], while_compiling: Callable[[], None] | None = None) -> list[bytes]:
        """Return the object files of all tasks, whether they were added or not.

        Workers take the longest remaining task. This process takes the shortest, after `while_compiling`, which it
        calls if there are workers.
        """
        with self._changed:
            remaining = (task for task in dict.fromkeys(tasks) if task not in self._taken)
            self._end_with(sorted(remaining, key=lambda task: -len(task.text)), frozenset(tasks))
        try:
            if while_compiling is not None and self._feeders:
                while_compiling()
            self._work_here()
            self._join()
        except BaseException as error:
            self.close()
            if not isinstance(error, Exception):
                # Ctrl-C: no one waits for what the workers compile.
                for process in self._processes:
                    process.popen.kill()
            self._join()
            raise
        # A worker that had ended after its idle time left its tasks.
        self._waiting.extend(task for task in dict.fromkeys(tasks) if task not in self._done)
        self._work_here()
        return [self._done[task] for task in tasks]

    def close(self) -> None:
        """Hand out no more tasks."""
        with self._changed:
            self._end_with((), ())

    def _end_with(self, remaining: Iterable[CompileTask], wanted: Collection[CompileTask]) -> None:
        """Replace the waiting tasks by the last ones."""
        self._waiting = deque(remaining)
        self._wanted = wanted
        self._changed.notify_all()

    def _join(self) -> None:
        for feeder in self._feeders:
            feeder.join()

    def _failure(self) -> Exception | None:
        """Return the error of a failed task whose code is needed."""
        return next((error for task, error in self._failures.items() if task in (self._wanted or ())), None)

    def _work_here(self) -> None:
        while (failure := self._failure()) is None and self._waiting:
            try:
                task = self._waiting.pop()
            except IndexError:
                break
            try:
                self._done[task] = compile_text(task.text, self.settings, task.entry, self._lowered)
            except PassError as error:
                raise PassError(f"@{task.name}: {error}") from error
        if failure is not None:
            raise failure

    def _work_there(self, process: _Process) -> None:
        # This process holds the GIL while it compiles: the worker has its next tasks queued before it needs them.
        ahead: deque[CompileTask] = deque()
        if not process.lock.acquire(blocking=False):
            return  # it compiles for another thread
        try:
            while self._failure() is None:
                while len(ahead) < AHEAD and (task := self._take(waits=not ahead)) is not None:
                    ahead.append(task)
                    process.send_task(task, self.settings)
                if not ahead:
                    return
                self._done[ahead[0]] = process.receive_results(ahead[0])
                ahead.popleft()
        except _WorkerExited:
            return  # `finish` handles the remaining tasks
        except Exception as error:
            self._failures[ahead[0]] = error
        finally:
            if ahead:
                # Unread answers would be taken for those of the next tasks.
                process.popen.kill()
                process.popen.wait()
            process.lock.release()

    def _take(self, waits: bool) -> CompileTask | None:
        """Return the next task; None if there is none, or will be none."""
        with self._changed:
            while waits and not self._waiting and self._wanted is None:
                self._changed.wait()
            if not self._waiting:
                return None
            task = self._waiting.popleft()
            self._taken.add(task)
            return task


def _end_all() -> None:
    """End all workers when Python exits."""
    for process in _processes:
        process.popen.kill()
        process.popen.wait()


atexit.register(_end_all)
# The pipes belong to the parent; a forked child starts its own workers.
after_fork(_processes.clear)


def _ready() -> bool:
    with _lock:
        return any(process.is_alive() for process in _processes)


def _running(count: int) -> list[_Process]:
    """Return this many workers; start those that are missing."""
    with _lock:
        _processes[:] = [process for process in _processes if process.is_alive()]
        while len(_processes) < count:
            try:
                _processes.append(_start())
            except OSError:
                break  # the system has no resources for another process: this one does the work
        return _processes[:count]


def _start() -> _Process:
    end_blas_threads()
    if is_single_threaded():
        llvmlite()  # which each worker would import otherwise
        return _Process(ForkedProcess(work))
    command = fresh_command("mirlo.targets.llvm.processes", runs_rules=False)
    # NumPy's BLAS threads, which workers do not need, would compete for cores.
    environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ}
    # In a session of its own, so that Ctrl-C in a terminal reaches this process only, which then ends them.
    popen = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
    )
    return _Process(popen)


def _how(code: int) -> str:
    if code < 0:
        name = signal_name(-code)
        hint = ", as the system does when memory runs out" if name == "SIGKILL" else ""
        return f"by signal {name}{hint}; compile with jobs=1 to see where"
    return f"with exit code {code}"


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
def work() -> None:
    """Answer each task, the arguments of `compile_text`, with `(object file, None)` or `(None, error)`."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    tasks = os.fdopen(0, "rb", buffering=0)
    # Few cyclic objects are created by units, and most of those are freed with the unit.
    gc.set_threshold(50_000)
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
    work()
