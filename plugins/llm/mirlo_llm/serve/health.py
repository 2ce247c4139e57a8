"""The health port: a separate process that answers while the server is busy, and messages to it."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mirlo_llm.serve import health_process
from mirlo_llm.serve.errors import ServeError
from mirlo_llm.serve.health_process import BEAT_SECONDS, NOT_READY, READY

BACKLOG = 128
END_SECONDS = 5.0


class HealthPort:
    """A process that answers on its own port, and receives heartbeats of the event loop."""

    def __init__(self, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError as error:
            raise ServeError(f"{host}:{port}: the address for health cannot be used: {error.strerror}") from None
        with listener:
            self.port = int(listener.getsockname()[1])
            self._beats, theirs = socket.socketpair()
            with theirs:
                # The file alone: importing the package takes as long as what the process answers for.
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(Path(health_process.__file__)), str(listener.fileno())],
                    stdin=theirs.fileno(), stdout=subprocess.DEVNULL, pass_fds=[listener.fileno()],
                )  # fmt: skip
        self._beats.setblocking(False)

    async def beat(self, is_ready: Callable[[], bool]) -> None:
        """Send a heartbeat with the readiness repeatedly, until cancelled."""
        while True:
            self.send(is_ready())
            await asyncio.sleep(BEAT_SECONDS)

    def send(self, is_ready: bool) -> None:
        """Send the readiness once."""
        with suppress(OSError):  # the process has ended, or is stopped
            self._beats.send(READY if is_ready else NOT_READY)

    def close(self) -> None:
        """End the process."""
        self._beats.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
