"""Limits of requests and connections that uvicorn lacks."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from functools import lru_cache
from typing import Any

from mirlo.extend.runtime import raise_file_limit
from mirlo_llm.serve.options import ServeOptions

MAX_HEAD = 64 << 10
"""Most bytes of a request before its body: request line and headers."""
OTHER_FILES = 256
"""Descriptors reserved for models and processes."""
HEAD, BODY, ANSWER = "head", "body", "answer"
"""States of a connection: waiting for a head, for a body, or for an answer."""


class ConnectionTable:
    """The connections of a server by state and client address.

    Above the limit, the connection that has waited longest for a head is closed, then one that waits for a body, so
    that a client that sends its request at once always gets an answer.
    """

    def __init__(self, most: int, most_of_address: int) -> None:
        """Store the limits; `most_of_address` of 0 means no limit per address."""
        self._most, self._most_of_address = most, most_of_address
        self._addresses: Counter[object] = Counter()
        self._waiting: dict[str, dict[Any, None]] = {HEAD: {}, BODY: {}, ANSWER: {}}
        """Those that came first are first."""

    @property
    def count(self) -> int:
        """Return the number of connections."""
        return sum(map(len, self._waiting.values()))

    def add(self, connection: Any, address: str) -> bool:
        """Add a connection; return False if its client has too many, or no other can be closed for it."""
        key = _network(address)
        if self._most_of_address and self._addresses[key] >= self._most_of_address:
            return False
        if self.count >= self._most:
            oldest = next((each for state in (HEAD, BODY) for each in self._waiting[state]), None)
            if oldest is None:
                return False
            self.remove(oldest)
            oldest.transport.abort()
        connection.table_key = key
        connection.table_state = HEAD
        self._addresses[key] += 1
        self._waiting[HEAD][connection] = None
        return True

    def move(self, connection: Any, state: str) -> None:
        """Record the new state of a connection."""
        if connection.table_state not in (None, state):
            del self._waiting[connection.table_state][connection]
            self._waiting[state][connection] = None
            connection.table_state = state

    def remove(self, connection: Any) -> None:
        """Remove a closed connection."""
        if connection.table_state is None:
            return
        del self._waiting[connection.table_state][connection]
        connection.table_state = None
        self._addresses[connection.table_key] -= 1
        if not self._addresses[connection.table_key]:
            del self._addresses[connection.table_key]


@lru_cache(4096)
def _network(address: str) -> object:
    """Return the key of one client: an IPv4 address, or an IPv6 network, since clients have whole networks."""
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(known, ipaddress.IPv6Address):
        return known.ipv4_mapped or known.packed[:8]
    return known


def limited_protocol(options: ServeOptions) -> Any:
    """Return uvicorn's protocol class with limits, based on httptools if installed, otherwise on h11."""
    most = max(64, min(options.connections, raise_file_limit() - OTHER_FILES))
    table = ConnectionTable(most, options.connections_each)
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ImportError:
        from uvicorn.protocols.http.h11_impl import H11Protocol

        bases: tuple[Any, ...] = (_LimitedConnections, H11Protocol)
    else:
        bases = (_LimitedConnections, _LimitedSizes, HttpToolsProtocol)
    attributes = {"table": table, "head_seconds": options.head_seconds, "max_body": options.max_body}
    return type("LimitedProtocol", bases, attributes)


class _LimitedSizes:
    """Refuses messages that are too large, counting headers, chunks and trailers.

    This is for httptools; h11 has its own limits.
    """

    max_body: int
    send_400_response: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._message_bytes, self._is_head = 0, True

    def data_received(self, data: bytes) -> None:
        """Receive bytes from the network."""
        self._message_bytes += len(data)
        most = MAX_HEAD if self._is_head else 2 * self.max_body + MAX_HEAD
        # What is read at once may hold a head and much of a body.
        if self._message_bytes - (len(data) if self._is_head else 0) > most or (
            self._is_head and len(data) > MAX_HEAD and b"\r\n\r\n" not in data[:MAX_HEAD]
        ):
            self.send_400_response("The request is too large.")
            return
        super().data_received(data)  # type: ignore[misc]

    def on_headers_complete(self) -> None:
        """Record that the body follows."""
        self._is_head = False
        super().on_headers_complete()  # type: ignore[misc]

    def on_message_complete(self) -> None:
        """Record that the next request follows."""
        self._message_bytes, self._is_head = 0, True
        super().on_message_complete()  # type: ignore[misc]


class _LimitedConnections:
    """Counts connections, and closes those whose head does not arrive in time."""

    table: ConnectionTable
    table_key: object = None
    table_state: str | None = None
    head_seconds: float
    _deadline: asyncio.TimerHandle | None = None
    # Of uvicorn's protocols:
    client: tuple[str, int] | None
    cycle: Any
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Add a connection; close it if its client has too many."""
        super().connection_made(transport)  # type: ignore[misc]
        if self.table.add(self, self.client[0] if self.client else ""):
            self._deadline = self.loop.call_later(self.head_seconds, self._end_late)
            return
        transport.write(_REFUSED)
        transport.close()

    def data_received(self, data: bytes) -> None:
        """Receive bytes from the network."""
        if self.transport.is_closing():
            return
        super().data_received(data)  # type: ignore[misc]
        state = self._state()
        self.table.move(self, state)
        if state != HEAD:
            self._cancel_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.head_seconds, self._end_late)

    def on_response_complete(self) -> None:
        """Record that the connection waits for the next head."""
        super().on_response_complete()  # type: ignore[misc]
        self.table.move(self, self._state())

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection."""
        self.table.remove(self)
        self._cancel_deadline()
        super().connection_lost(exc)  # type: ignore[misc]

    def _state(self) -> str:
        if self.cycle is None or self.cycle.response_complete:
            return HEAD
        return BODY if self.cycle.more_body else ANSWER

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end_late(self) -> None:
        self._deadline = None
        if self._state() == HEAD:
            self.transport.abort()


_REASON = b'{"error":{"message":"this address has too many connections","type":"rate_limit_error"}}'
_REFUSED = (
    b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\nretry-after: 5\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_REASON), _REASON)
)
