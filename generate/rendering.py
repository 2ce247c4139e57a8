"""The client of the process that renders a chat template (`template_process.py`)."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path

from mirlo.runtime.system import signal_name

SECONDS = 10
"""Time in which a template must be compiled, and each conversation rendered; templates of models take milliseconds."""
START_SECONDS = 120
"""Time in which the process of a template must start, on a busy machine."""
MEMORY = 1 << 30
"""Bytes of address space of the process of a template; those of models need 50 MB."""
_START = "import json, runpy, sys; sys.path[:] = json.loads(sys.argv[1]); runpy.run_path(sys.argv[2], {}, '__main__')"


class TemplateProcess:
    """A process that compiles a template and renders it, one text at a time."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("template_process.py")
        # In a session of its own, so that Ctrl-C in a terminal reaches this process only, which then ends it.
        self._popen = subprocess.Popen(
            [sys.executable, "-c", _START, json.dumps(sys.path), str(script)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._owner = os.getpid()
        self._end = weakref.finalize(self, _end_process, self._popen, self._owner)

    def is_usable(self) -> bool:
        """Return whether the process runs, and is one of this process."""
        return self._owner == os.getpid() and self._popen.poll() is None

    def open(self, template: str) -> dict[str, str]:
        """Compile a template; return the process's answer."""
        settings = {"template": template, "memory": MEMORY, "seconds": SECONDS}
        started = self._exchange(json.dumps(settings), START_SECONDS)
        return started or self._exchange("", SECONDS)

    def ask(self, line: str) -> dict[str, str]:
        """Return the answer to a line of arguments."""
        return self._exchange(line, SECONDS)

    def _exchange(self, line: str, seconds: float) -> dict[str, str]:
        """Send a line, if there is one, and return the answer; end the process if there is none in time."""
        stdin, stdout = self._popen.stdin, self._popen.stdout
        assert stdin is not None and stdout is not None
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self._popen.kill()

        timer = threading.Timer(seconds, give_up)
        timer.daemon = True
        timer.start()
        try:
            if line:
                stdin.write(line.encode() + b"\n")
                stdin.flush()
            answered = stdout.readline()
        except BrokenPipeError:
            answered = b""
        except BaseException:  # such as Ctrl-C: a later answer would be taken for that to another line
            self._end()
            raise
        finally:
            timer.cancel()
        if answered.endswith(b"\n"):
            answer: dict[str, str] = json.loads(answered)
            return answer
        self._end()
        if late.is_set():
            return {"failed": f"it takes longer than {seconds:.0f} s"}
        return {"failed": f"its process ended {_how(self._popen.returncode)}"}


def _end_process(popen: subprocess.Popen[bytes], owner: int) -> None:
    if owner != os.getpid():
        return  # a fork of the process that started it
    popen.kill()
    popen.wait()
    for pipe in (popen.stdin, popen.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _how(code: int) -> str:
    return f"by signal {signal_name(-code)}" if code < 0 else f"with exit code {code}"
