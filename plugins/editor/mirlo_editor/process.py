"""The client side of the worker process, which is started on demand and restarted after it has ended."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from mirlo.extend.runtime import MirloError, fresh_command

MAX_ANSWER = 2**28
"""Most bytes of an answer, such as the index of a large module or the assembly of all its kernels."""
MAX_REQUESTS = 2000
"""Requests after which a worker is replaced, because MLIR contexts leak memory."""


class WorkerError(MirloError):
    """A request that failed, with the reason."""


class Worker:
    """One process of `mirlo_editor.worker`, which answers requests in order."""

    def __init__(self, seconds: float):
        self.seconds = seconds
        self.process: asyncio.subprocess.Process | None = None
        self.requests = 0
        self.lock = asyncio.Lock()

    async def ask(self, method: str, **arguments: object) -> Any:
        """Return the result of a request; raise its error."""
        line = json.dumps({"method": method, "arguments": arguments}) + "\n"
        async with self.lock:
            answer = await self._answer(line.encode())
        if not answer:
            raise WorkerError(
                "the process that reads this document ended: its text made the parser or the compiler fail"
            )
        reply = json.loads(answer)
        if "error" in reply:
            raise WorkerError(reply["error"])
        return reply["result"]

    async def _answer(self, line: bytes) -> bytes:
        process = await self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line)
        try:
            await process.stdin.drain()
            return await asyncio.wait_for(process.stdout.readline(), self.seconds)
        except asyncio.TimeoutError:
            self._end()
            raise WorkerError(f"this took more than {self.seconds:.0f} seconds, and was ended") from None
        except (BrokenPipeError, ConnectionResetError):
            return b""
        except asyncio.CancelledError:
            self._end()  # its answer must not be taken for that of the next request
            raise

    async def _running(self) -> asyncio.subprocess.Process:
        if self.requests >= MAX_REQUESTS:
            self._end()
        if self.process is None or self.process.returncode is not None or self.process.stdout is None or (
            self.process.stdout.at_eof()
        ):  # fmt: skip
            self.requests = 0
            self.process = await asyncio.create_subprocess_exec(
                *fresh_command("mirlo_editor.worker"),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=MAX_ANSWER,
            )  # fmt: skip
        self.requests += 1
        return self.process

    def _end(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
        self.process = None

    async def close(self) -> None:
        """End the process."""
        process = self.process
        self._end()
        if process is not None:
            await process.wait()
