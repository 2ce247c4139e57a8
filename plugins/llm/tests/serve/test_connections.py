"""Connections of a server: heads must come in time, and no client keeps the others out."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

uvicorn = pytest.importorskip("uvicorn")

from mirlo_llm.serve import http_limits  # noqa: E402
from mirlo_llm.serve.http_limits import ANSWER, BODY, HEAD, ConnectionTable, limited_protocol  # noqa: E402
from mirlo_llm.serve.options import ServeOptions  # noqa: E402


class Connection(SimpleNamespace):
    """What a table of connections needs of one."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def new_connection() -> Connection:
    ended: list[bool] = []
    return Connection(table_state=None, ended=ended, transport=SimpleNamespace(abort=lambda: ended.append(True)))


def test_the_oldest_head_makes_room() -> None:
    table = ConnectionTable(3, 2)
    first, second, third, fourth, fifth, sixth = (new_connection() for _ in range(6))
    assert table.add(first, "10.0.0.1") and table.add(second, "::ffff:10.0.0.1") and not table.add(third, "10.0.0.1")
    assert table.add(third, "2001:db8::1") and table.count == 3
    table.move(first, ANSWER), table.move(second, BODY)
    assert table.add(fourth, "2001:db8::2") and third.ended and not second.ended and table.count == 3
    table.move(fourth, ANSWER)
    assert table.add(fifth, "host") and second.ended and not first.ended
    table.move(fifth, ANSWER)
    assert not table.add(sixth, "10.0.0.9") and table.count == 3
    table.move(first, HEAD), table.remove(fifth), table.remove(fifth)
    assert table.add(sixth, "10.0.0.1") and not first.ended and table.add(third, "10.0.0.2") and first.ended


@asynccontextmanager
async def listening(protocol: str, **options: Any) -> AsyncIterator[int]:
    """Serve an application that answers with the length of a body; yield the port."""

    async def application(
        scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[Any]]
    ) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message.get("body", b"")), message.get("more_body", False)
        content = str(size).encode()
        length = (b"content-length", str(len(content)).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": content})

    limited = limited_protocol(ServeOptions(**options))
    assert any(base.__module__.endswith(f"{protocol}_impl") for base in limited.__mro__)
    config = uvicorn.Config(application, log_config=None, http=limited, lifespan="off", ws="none")
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    running = asyncio.ensure_future(server._serve([listener]))
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await running


@pytest.fixture(params=["httptools", "h11"])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    if name == "httptools":
        pytest.importorskip("httptools")
    else:
        pytest.importorskip("h11")
        monkeypatch.setitem(sys.modules, "uvicorn.protocols.http.httptools_impl", None)
    return name


REQUEST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc"


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, content: bytes = REQUEST) -> bytes:
    writer.write(content)
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    return await reader.readexactly(1)


async def ended(reader: asyncio.StreamReader) -> bool:
    """Return whether a connection ends with no answer."""
    try:
        return await reader.read() == b""
    except OSError:
        return True


def test_heads_must_come_in_time(protocol: str) -> None:
    """From where a connection is accepted, and again for each head, however slowly its bytes come."""

    async def run() -> None:
        async with listening(protocol, head_seconds=0.5) as port:
            silent = await asyncio.open_connection("127.0.0.1", port)
            slow, again = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            assert await ask(*again) == b"3" and await ask(*again) == b"3"
            again[1].write(REQUEST[:9])
            for letter in REQUEST[:40]:
                slow[1].write(bytes([letter]))
                await asyncio.sleep(0.02)
            for reader, _ in (silent, slow, again):
                assert await ended(reader)
            whole = await asyncio.open_connection("127.0.0.1", port)
            for part in (REQUEST[:9], REQUEST[9:-1]):
                whole[1].write(part)
                await asyncio.sleep(0.3)
            await asyncio.sleep(0.6)  # a body has another limit, as have answers
            assert await ask(*whole, REQUEST[-1:]) == b"3"

    asyncio.run(run())


def test_unfinished_heads_keep_no_one_out(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 64 connections, those without a request make room; one address has up to 40."""
    monkeypatch.setattr(http_limits, "raise_file_limit", lambda: 0)

    async def run() -> None:
        async with listening(protocol, connections_each=40, head_seconds=60) as port:
            opened = []
            for number in range(200):
                local = (f"127.0.0.{2 + number // 40}", 0)
                opened.append(await asyncio.open_connection("127.0.0.1", port, local_addr=local))
                opened[-1][1].write(REQUEST[:9])
            start = time.monotonic()
            assert await ask(*await asyncio.open_connection("127.0.0.1", port)) == b"3"
            assert time.monotonic() - start < 30
            refused = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.6", 0))
            assert (await refused[0].read()).startswith(b"HTTP/1.1 429 ")

    asyncio.run(run())
