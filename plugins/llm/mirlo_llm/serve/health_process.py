"""The process of the health port, which needs neither the server's interpreter lock nor its event loop.

It reads bytes from standard input, READY or NOT_READY, one per heartbeat, and ends when that is closed. Its argument is
the descriptor of the listening socket.
"""

from __future__ import annotations

import selectors
import signal
import socket
import sys
import time

READY, NOT_READY = b"r", b"l"
BEAT_SECONDS = 0.5
"""Seconds between heartbeats."""
STALLED_SECONDS = 60.0
"""Seconds without a heartbeat after which the server counts as not live."""
MOST_CONNECTIONS = 64
"""Most connections; a new one replaces the oldest."""
MOST_BYTES = 4096
"""Most bytes of a request."""


class Health:
    """The state of the server, and answers to requests."""

    def __init__(self) -> None:
        self._is_ready, self._last = False, time.monotonic()

    def beat(self, content: bytes) -> None:
        """Receive heartbeats of the server."""
        self._is_ready, self._last = content[-1:] == READY, time.monotonic()

    def answer(self, request: bytes) -> bytes:
        """Return the answer to a request."""
        method, _, rest = request.partition(b" ")
        path = rest.split(b" ")[0].split(b"?")[0]
        is_live = time.monotonic() - self._last < STALLED_SECONDS
        if method not in (b"GET", b"HEAD"):
            return _form(405, b'{"error":"expected GET"}', method)
        if path == b"/v2/health/live":
            return _form(200 if is_live else 503, b'{"live":%b}' % _text(is_live), method)
        if path == b"/v2/health/ready":
            is_ready = is_live and self._is_ready
            return _form(200 if is_ready else 503, b'{"ready":%b}' % _text(is_ready), method)
        return _form(404, b'{"error":"this port has /v2/health/live and /v2/health/ready"}', method)


_REASONS = {
    200: b"OK",
    404: b"Not Found",
    405: b"Method Not Allowed",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}


def _form(status: int, content: bytes, method: bytes) -> bytes:
    head = (
        b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n"
        b"x-content-type-options: nosniff\r\n\r\n" % (status, _REASONS[status], len(content))
    )
    return head if method == b"HEAD" else head + content


def _text(flag: bool) -> bytes:
    return b"true" if flag else b"false"


class Listener:
    """The connections of the port, each of which gets one answer."""

    def __init__(self, listener: socket.socket, health: Health) -> None:
        self._listener, self._health = listener, health
        self._waiting: dict[socket.socket, bytearray] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)

    def run(self, beats: socket.socket) -> None:
        """Answer until the server closes its end of `beats`."""
        self._selector.register(beats, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                place = key.fileobj
                if place is beats:
                    content = beats.recv(1024)
                    if not content:
                        return
                    self._health.beat(content)
                elif place is self._listener:
                    self._accept()
                elif isinstance(place, socket.socket) and place in self._waiting:
                    self._read(place)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # it has gone, or there are no files left
            return
        connection.setblocking(False)
        while len(self._waiting) >= MOST_CONNECTIONS:
            self._end(next(iter(self._waiting)))
        self._waiting[connection] = bytearray()
        self._selector.register(connection, selectors.EVENT_READ)

    def _read(self, connection: socket.socket) -> None:
        request = self._waiting[connection]
        try:
            content = connection.recv(MOST_BYTES)
            request += content
            if b"\r\n\r\n" in request:
                connection.send(self._health.answer(bytes(request)))
            elif len(request) > MOST_BYTES:
                connection.send(_form(431, b"{}", b""))
            elif content:
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        del self._waiting[connection]
        self._selector.unregister(connection)
        connection.close()


def main() -> int:
    """Answer on the port of health until the server ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the server finishes what runs
    listener = socket.socket(fileno=int(sys.argv[1]))
    listener.setblocking(False)
    Listener(listener, Health()).run(socket.socket(fileno=sys.stdin.fileno()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
