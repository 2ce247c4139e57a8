"""The processes of the engines: started, controlled, and paused while others are measured."""

from __future__ import annotations

import compileall
import contextlib
import json
import os
import subprocess
import sys
import threading
import types
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import IO, Any

from mirlo.runtime import processes
from mirlo.runtime.errors import MirloError
from mirlo.runtime.fresh_process import fresh_command
from mirlo.runtime.records import dataclass
from mirlo.tools.bench.engines import ENGINES

ROOT = Path(__file__).resolve().parents[2]
_START = """
import sys, types
package = types.ModuleType("mirlo")  # this Python need not have Mirlo
package.__path__ = [sys.argv[1]]
sys.modules["mirlo"] = package
from mirlo.tools.bench.child import main
main()
"""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class EngineError(MirloError):
    """An engine that is not installed, or that failed."""

    error_code = "MIR0714"
    remedy = "Install the engine in the Python that `--python` names, or leave it out of `--against`."

    def __init__(self, message: str, answer: Mapping[str, str] | None = None):
        super().__init__(message)
        self.answer = answer or {}
        """What the engine's process answered: `error`, and `error_code` and `remedy` of an error of Mirlo's."""

    def of_mirlo(self, model: Path) -> MirloError:
        """Return the error that Mirlo raised in its process, as it stands, or one that names the model."""
        if "error_code" not in self.answer:
            return MirloError(f"{model}: {self}")
        error = MirloError(self.answer["error"])
        error.error_code, error.remedy = self.answer["error_code"], self.answer["remedy"]
        return error


@dataclass
class Process:
    """The process of an engine with one model."""

    engine: str
    python: str | None = None
    """The interpreter; None for this one."""
    threads: int = 1
    answer: dict[str, object] = field(default_factory=dict)
    """The last response."""

    def __post_init__(self) -> None:
        _require(self.engine, self.python)
        if self.engine == "mirlo":
            _compile_sources()
        command = [self.python, "-c", _START, str(ROOT)] if self.python else fresh_command("mirlo.tools.bench.child")
        self._popen = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **dict.fromkeys(_THREADS, str(self.threads))}, start_new_session=True,
        )  # fmt: skip
        stdin, stdout, stderr = self._popen.stdin, self._popen.stdout, self._popen.stderr
        assert stdin is not None and stdout is not None and stderr is not None
        self._requests, self._answers, self._errors = stdin, stdout, _Tail(stderr)

    def ask(self, do: str, **arguments: object) -> Any:
        """Send a request and wait for the response."""
        try:
            self._requests.write(json.dumps({"do": do, **arguments}) + "\n")
            self._requests.flush()
            line = self._answers.readline()
        except OSError:
            line = ""
        if not line:
            code = self._popen.wait()
            raise EngineError(f"{self._title}: its process ended with code {code}{self._errors.text()}")
        answer = json.loads(line)
        if not answer.pop("ok"):
            raise EngineError(f"{self._title}: {answer['error']}", answer)
        self.answer = answer
        return answer

    def pause(self) -> None:
        """Suspend the process: threads that spin while idle would take time from others."""
        processes.stop_group(self._popen.pid)

    def go_on(self) -> None:
        """Resume the process."""
        processes.continue_group(self._popen.pid)

    def end(self) -> None:
        """End the process."""
        self.go_on()
        with contextlib.suppress(OSError):
            self._requests.close()
        try:
            self._popen.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *unused: type[BaseException] | BaseException | types.TracebackType | None) -> None:
        self.end()

    @property
    def _title(self) -> str:
        return ENGINES[self.engine].title


PRESSURE_BYTES = 256 << 20
"""Bytes of each of two arrays that are copied to each other: more than the last-level cache of most CPUs."""
SPINNER = "pass"
PRESSURE = f"a, b = (memoryview(bytearray({PRESSURE_BYTES})) for _ in range(2))\nwhile time.monotonic() < end: a[:] = b"
"""What neighbors run: arithmetic in the L1 cache, and copies through the last-level cache and memory."""


class Neighbor:
    """Processes that run loads, each on one core, while it is entered; they end by themselves after `seconds`."""

    def __init__(self, loads: Sequence[str], seconds: float) -> None:
        self._loads, self._seconds = loads, seconds

    def __enter__(self) -> None:
        begin = f"import time\nend = time.monotonic() + {self._seconds}\n"
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-S", "-c", f"{begin}{load}\nwhile time.monotonic() < end: pass"],
                start_new_session=True,
            )
            for load in self._loads
        ]

    def __exit__(self, *unused: type[BaseException] | BaseException | types.TracebackType | None) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


class _Tail:
    """The end of a process's output, read continuously, so that the process never blocks on a full pipe."""

    def __init__(self, stream: IO[str]) -> None:
        self._lines: deque[str] = deque(maxlen=8)
        self._thread = threading.Thread(target=lambda: self._lines.extend(stream), daemon=True)
        self._thread.start()

    def text(self) -> str:
        self._thread.join(timeout=1)
        return "".join(["\n", *self._lines]).rstrip() if self._lines else ""


@cache
def _compile_sources() -> None:
    """Compile the Python sources of all engines, as pip does at installation."""
    for folder in ("dialects", "frontends", "passes", "runtime", "targets", "tools"):
        compileall.compile_dir(ROOT / folder, quiet=2)


def _require(engine: str, python: str | None) -> None:
    """Raise an error that names the packages to install if an engine is missing."""
    known = ENGINES[engine]
    code = f"import importlib.util as u, sys; sys.exit(0 if u.find_spec({known.module.split('.')[0]!r}) else 7)"
    if engine == "mirlo":
        return
    try:
        completed = subprocess.run([python or sys.executable, "-c", code], capture_output=True).returncode
    except OSError as error:
        raise EngineError(f"{known.title}: there is no Python at '{python}': {error.strerror}") from None
    if completed == 7:
        where = f" in {python}" if python else ""
        raise EngineError(
            f"{known.title} is not installed{where}: pip install 'mirlo[bench-{engine}]' (that is, {known.package}), "
            f"or name a Python that has it with --python {engine}=PATH"
        )
