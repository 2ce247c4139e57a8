"""The functions of a bounded process as on Windows: nothing but its time is limited, and no descriptors come."""

from __future__ import annotations

import socket

from bounded_functions import open as open  # noqa: PLC0414

from mirlo.runtime import bounded_process


def receive_some(connection: socket.socket, most: int) -> tuple[bytes, list[int]]:
    return connection.recv(most), []


bounded_process.receive_some = receive_some
for name in ("limit_stack", "limit_memory", "limit_growth", "limit_processor"):
    setattr(bounded_process, name, lambda limit: None)
