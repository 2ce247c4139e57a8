"""Requests that the front of a cluster forwards to replicas."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

from mirlo_llm.serve.body import BodyFields, Message, Scope, parse_object
from mirlo_llm.serve.errors import RequestError
from mirlo_llm.serve.forms import read_form
from mirlo_llm.serve.gate import Gate
from mirlo_llm.serve.threads import run_in_thread

FORWARDED = (
    b"accept", b"content-type", b"inference-header-content-length", b"traceparent", b"tracestate", b"baggage",
)  # fmt: skip
"""Headers that are forwarded; keys and origins were checked before."""
SEEDED = ("/v1/chat/completions", "/v1/completions")
"""Paths of sampled answers, which are reproducible only with a seed."""
MAX_SEED = (1 << 62) - 1


@dataclass(frozen=True)
class ForwardedRequest:
    """A request with its whole body, which can be sent again."""

    method: str
    path: str
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    model: str = ""
    """The requested model; empty if there is none, or an unknown one."""

    @property
    def scope(self) -> dict[str, object]:
        """Return the request as an ASGI scope."""
        return {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": self.method, "scheme": "http",
            "path": self.path, "raw_path": self.path.encode(), "root_path": "", "query_string": b"",
            "headers": [*self.headers, (b"host", b"localhost")], "client": None, "server": None,
        }  # fmt: skip


async def forwarded(scope: Scope, body: bytes, models: Sequence[str]) -> ForwardedRequest:
    """Return a request with its model, and with a seed if the answer is a stream of samples.

    Invalid bodies are not reported here: the replica answers with the error.
    """
    headers = tuple((bytes(name), bytes(value)) for name, value in scope["headers"] if name in FORWARDED)
    request = ForwardedRequest(scope["method"], scope["path"], headers, body)
    parts = scope["path"].split("/")
    if parts[1:3] in (["v2", "models"], ["v1", "models"]):
        return _named(request, parts[3] if len(parts) > 3 else "", models)
    if request.method != "POST":
        return request
    try:
        if any(name == b"content-type" and value.lower().startswith(b"multipart/") for name, value in headers):
            return _named(request, (await read_form(scope, body)).texts.get("model", ""), models)
        fields = await run_in_thread(len(body), lambda: parse_object(body))
        if request.path in SEEDED and BodyFields(fields).flag("stream") and fields.get("seed") is None:
            seeded = {**fields, "seed": secrets.randbelow(MAX_SEED)}
            request = replace(request, body=json.dumps(seeded).encode())
    except RequestError:
        return request
    return _named(request, fields.get("model"), models)


def _named(request: ForwardedRequest, name: object, models: Sequence[str]) -> ForwardedRequest:
    return replace(request, model=name) if isinstance(name, str) and name in models else request


async def answer_of(server: Gate, request: ForwardedRequest) -> AsyncIterator[Message]:
    """Yield the ASGI messages of an application's answer; closing the iterator disconnects the client."""
    messages: asyncio.Queue[Message | None] = asyncio.Queue()
    gone = asyncio.Event()
    bodies = [request.body]

    async def receive() -> Message:
        if bodies:
            return {"type": "http.request", "body": bodies.pop(), "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def run() -> None:
        try:
            await server(request.scope, receive, messages.put)
        finally:
            messages.put_nowait(None)

    task = asyncio.ensure_future(run())
    try:
        while (message := await messages.get()) is not None:
            yield message
        await task
    finally:
        gone.set()
        await asyncio.wait([task])
