"""Limits of what a client may send before and around a body, which uvicorn's faster parser does not have."""

from __future__ import annotations

from typing import Any

MAX_HEAD = 64 << 10
"""Bytes of a request before its body: line, headers."""


def limited_protocol(max_body: int) -> Any:
    """Return uvicorn's protocol with limits; "h11", which has its own, where `httptools` is not installed."""
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ImportError:
        return "h11"

    class LimitedHttpProtocol(HttpToolsProtocol):  # type: ignore[misc]
        """Refuses messages that are too large, however their bytes are spread over headers, chunks and trailers."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._message_bytes, self._is_head = 0, True

        def data_received(self, data: bytes) -> None:
            """Take bytes from the network."""
            self._message_bytes += len(data)
            most = MAX_HEAD if self._is_head else 2 * max_body + MAX_HEAD
            # What is read at once may hold a head and much of a body.
            if self._message_bytes - (len(data) if self._is_head else 0) > most or (
                self._is_head and len(data) > MAX_HEAD and b"\r\n\r\n" not in data[:MAX_HEAD]
            ):
                self.send_400_response("The request is too large.")
                return
            super().data_received(data)

        def on_headers_complete(self) -> None:
            """Note that what follows is the body."""
            self._is_head = False
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            """Note that what follows is the next request."""
            self._message_bytes, self._is_head = 0, True
            super().on_message_complete()

    return LimitedHttpProtocol
