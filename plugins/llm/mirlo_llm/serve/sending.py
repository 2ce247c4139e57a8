"""Sending of answers: JSON and event streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from mirlo_llm.serve.body import Deadline, Disconnected, Receive, Send
from mirlo_llm.serve.json_pieces import encode_in_pieces, encode_json
from mirlo_llm.serve.threads import INLINE_BYTES, run_in_thread

JSON = b"application/json"
WATCH_SECONDS = 0.003
"""Seconds before a task watches for a disconnected client, which short answers do not need."""
DATA, NAMED, LINES = "data", "named", "lines"
"""Formats of streams: data events with a final [DONE], events with type names, lines of JSON."""
Headers = Iterable[tuple[bytes, bytes]]


async def send_bytes(send: Send, status: int, content: bytes, kind: bytes = JSON, headers: Headers = ()) -> None:
    """Send a whole answer."""
    start = [(b"content-type", kind), (b"content-length", str(len(content)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": content})


async def send_json(send: Send, status: int, value: object, headers: Headers = ()) -> None:
    """Send a whole answer of JSON."""
    await send_bytes(send, status, encode_json(value), JSON, headers)


async def send_large_json(send: Send, status: int, nbytes: int, make: Callable[[], object]) -> None:
    """Send a JSON answer of about this many bytes, which a function creates."""
    write = encode_json if nbytes <= INLINE_BYTES else encode_in_pieces
    await send_bytes(send, status, await run_in_thread(nbytes, lambda: write(make())))


class EventSender:
    """Sends events or lines to a client that must read them in time."""

    def __init__(self, send: Send, seconds: float, form: str = DATA) -> None:
        self._send, self._seconds, self._form = send, seconds, form
        self.is_begun = False

    async def send(self, values: Iterable[object], is_last: bool = False) -> None:
        """Send events together."""
        if not self.is_begun:
            self.is_begun = True
            kind = b"application/x-ndjson" if self._form == LINES else b"text/event-stream; charset=utf-8"
            headers = [(b"content-type", kind), (b"cache-control", b"no-store")]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        content = b"".join(map(self._encoded, values))
        if is_last and self._form == DATA:
            content += b"data: [DONE]\n\n"
        await self._body(content, not is_last)

    async def end(self, value: object) -> None:
        """Send an error as the last event."""
        await self._body(self._encoded(value), False)

    def _encoded(self, value: object) -> bytes:
        if self._form == LINES:
            return encode_json(value) + b"\n"
        name = b"event: %b\n" % str(value["type"]).encode() if self._form == NAMED and isinstance(value, dict) else b""
        return b"%bdata: %b\n\n" % (name, encode_json(value))

    async def _body(self, content: bytes, more: bool) -> None:
        with Deadline(self._seconds, Disconnected):
            await self._send({"type": "http.response.body", "body": content, "more_body": more})


class ClientWatch:
    """Calls `leave` if the client disconnects while this context is entered."""

    def __init__(self, receive: Receive, leave: Callable[[], object]) -> None:
        self._receive, self._leave = receive, leave
        self._task: asyncio.Future[None] | None = None

    async def __aenter__(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._begin)

    async def __aexit__(self, *error: object) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def _begin(self) -> None:
        self._task = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._leave()
                return
