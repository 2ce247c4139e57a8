"""Worker processes that compile kernels in parallel: MLIR's bindings hold the GIL, so threads would not.

They are started with the interpreter of this process, not forked from it: a fork copies locks that other threads
hold. Starting takes 0.1 to 0.2 seconds: `prepare` starts them while the passes before code generation run. They wait
a minute for the next model, and end with the process that started them.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mirlo.passes.registry import PassError
from mirlo.runtime.locks import make_lock
from mirlo.runtime.threads import available_cores
from mirlo.targets.llvm.machine_code import CodeSettings
from mirlo.targets.llvm.object_code import EntryInterface, compile_text
from mirlo.targets.llvm.worker import receive, send

MOST = 8
"""Most worker processes: more of them only wait for the largest kernel."""
LEAST_CHARACTERS = 150_000
"""Fewest characters of units, about two microseconds each to compile, for which waiting for a worker to start pays."""
AHEAD = 2
"""Tasks that a worker has queued at a time."""
_START = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from mirlo.targets.llvm.worker import main; main()"


@dataclass(frozen=True)
class CompileTask:
    """A unit to compile."""

    name: str
    text: str
    entry: EntryInterface | None


@dataclass
class _Process:
    """A worker process, used by one thread at a time."""

    popen: Any
    lock: Any = field(default_factory=make_lock)

    def tell(self, task: CompileTask, settings: CodeSettings) -> None:
        """Send a task; `answer` returns the results in the same order."""
        try:
            send(self.popen.stdin, (task.text, settings, task.entry))
        except OSError:
            raise self._ended(task) from None

    def answer(self, task: CompileTask) -> bytes:
        try:
            content, problem = receive(self.popen.stdout)
        except (OSError, EOFError):
            raise self._ended(task) from None
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


def prepare(jobs: int | None = None) -> None:
    """Start the workers that a compilation will use."""
    _running(helpers(jobs))


def compile_all(
    tasks: Sequence[CompileTask],
    settings: CodeSettings,
    jobs: int | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> list[bytes]:
    """Compile all tasks, the longest first, and return the object files.

    Workers compile and, after `meanwhile`, this process does too.
    """
    order = sorted(range(len(tasks)), key=lambda i: -len(tasks[i].text))
    count = min(helpers(jobs), len(tasks) - 1)
    if jobs is None and count > 0 and not _ready():
        count = count if sum(len(task.text) for task in tasks) >= LEAST_CHARACTERS else 0
    run = _Run(tasks, settings, deque(order))
    if count <= 0:
        run.work_here()
        return run.finished()
    processes = _running(count)
    feeders = [threading.Thread(target=run.work_there, args=(process,)) for process in processes]
    for feeder in feeders:
        feeder.start()
    try:
        if meanwhile is not None:
            meanwhile()
        run.work_here()
        run.join(feeders)
    except BaseException as error:
        if not isinstance(error, Exception):
            # Ctrl-C: nobody waits for what the processes compile.
            for process in processes:
                process.popen.kill()
        run.join(feeders)
        raise
    return run.finished()


@dataclass
class _Run:
    """The tasks of one compilation: workers take the longest remaining task, this process the shortest."""

    tasks: Sequence[CompileTask]
    settings: CodeSettings
    waiting: deque[int]
    done: dict[int, bytes] = field(default_factory=dict)
    failures: list[Exception] = field(default_factory=list)

    def join(self, feeders: Sequence[threading.Thread]) -> None:
        """Hand out no more tasks, and wait for those that were."""
        self.waiting.clear()
        for feeder in feeders:
            feeder.join()

    def work_here(self) -> None:
        while self.waiting and not self.failures:
            try:
                index = self.waiting.pop()
            except IndexError:
                return
            task = self.tasks[index]
            try:
                self.done[index] = compile_text(task.text, self.settings, task.entry)
            except PassError as error:
                raise PassError(f"@{task.name}: {error}") from error

    def work_there(self, process: _Process) -> None:
        # This process holds the GIL while it compiles: the worker has its next tasks queued before it needs them.
        ahead: deque[int] = deque()
        if not process.lock.acquire(blocking=False):
            return  # it compiles for another thread
        try:
            while not self.failures:
                while len(ahead) < AHEAD and self._take(ahead):
                    process.tell(self.tasks[ahead[-1]], self.settings)
                if not ahead:
                    return
                self.done[ahead[0]] = process.answer(self.tasks[ahead[0]])
                ahead.popleft()
        except _WorkerExited:
            return  # `finished` handles the remaining tasks
        except Exception as error:
            self.failures.append(error)
        finally:
            if ahead:
                # Unread answers would be taken for those of the next tasks.
                process.popen.kill()
                process.popen.wait()
            process.lock.release()

    def _take(self, ahead: deque[int]) -> bool:
        try:
            ahead.append(self.waiting.popleft())
        except IndexError:
            return False
        return True

    def finished(self) -> list[bytes]:
        if self.failures:
            raise self.failures[0]
        # A worker that had ended after its idle time left its tasks.
        self.waiting.extend(i for i in range(len(self.tasks)) if i not in self.done)
        self.work_here()
        return [self.done[i] for i in range(len(self.tasks))]


def _end_all() -> None:
    """End all workers when Python exits."""
    for process in _processes:
        process.popen.kill()
        process.popen.wait()


atexit.register(_end_all)
if hasattr(os, "register_at_fork"):
    # The pipes belong to the parent; a forked child starts its own workers.
    os.register_at_fork(after_in_child=_processes.clear)


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
    command = [sys.executable, "-c", _START, json.dumps(sys.path)]
    # NumPy's BLAS threads, which workers do not need, would compete for cores.
    environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ}
    # In a session of its own, so that Ctrl-C in a terminal reaches this process only, which then ends them.
    popen = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
    )
    return _Process(popen)


def _how(code: int) -> str:
    if code < 0:
        import signal

        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = str(-code)
        hint = ", as the system does when memory runs out" if name == "SIGKILL" else ""
        return f"by signal {name}{hint}; compile with jobs=1 to see where"
    return f"with exit code {code}"
