"""The process that parses, decodes or renders untrusted data; `bounded.py` is its client.

It reads messages from the socket that is its standard input, and answers each with one. A message has a header, JSON,
and content, bytes. The process that is started first imports modules and is copied; a copy opens one module, whose
`open` returns functions by name, and calls these. A copy may be copied again, with all that it has.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from mirlo.runtime.processes import (
    connected_input,
    end_fork,
    fork_process,
    limit_growth,
    limit_memory,
    limit_processor,
    limit_stack,
    lower_priority,
    receive_some,
)

SIZES = struct.Struct("<IQ")
"""What a message begins with: the bytes of its header and of its content."""
MAX_REASON = 2000
"""Characters of the longest reason in an answer."""
PART = 1 << 20
"""Bytes that are received at once."""


class Result(NamedTuple):
    """The result of a function of a bounded process."""

    value: Mapping[str, Any] = {}
    """JSON."""
    content: bytes = b""


Function = Callable[..., Result]
"""Takes the content of a message, and the values of its header as keyword arguments."""


class ArgumentsRefused(Exception):
    """Raised by a function for invalid arguments; any other exception is a failure."""


def main() -> None:
    """Answer messages until the other end of the socket is closed."""
    _Process(connected_input()).run()


class _Process:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._functions: Mapping[str, Function] = {}

    def run(self) -> None:
        while True:
            header, content, descriptors = self._receive()
            kind = header["message"]
            if kind == "fork":
                self._fork(header, descriptors[0])
                continue
            answer, result = _answered(lambda: self._do(kind, header, content))  # noqa: B023
            self._send(answer, result)

    def _do(self, kind: str, header: dict[str, Any], content: bytes) -> Result:
        if kind == "end":
            return Result({"code": end_fork(header["process"])})
        if kind == "import":
            importlib.import_module(header["module"])
            return Result()
        if kind == "open":
            opened = importlib.import_module(header["module"])
            if header["is_background"]:
                lower_priority()
            limit_stack(header["stack"])
            limit_memory(header["memory"])
            limit_processor(header["seconds"])
            self._functions = opened.open(content, **header["settings"])
            return Result()
        limit_processor(header["seconds"])
        return self._functions[header["name"]](content, **header["arguments"])

    def _fork(self, header: dict[str, Any], descriptor: int) -> None:
        """Copy this process; the copy answers at another socket."""
        for process in header["ended"]:
            end_fork(process)
        try:
            process = fork_process()
        except OSError as error:
            os.close(descriptor)
            self._send({"failed": f"there is no room for another process: {error.strerror}"}, b"")
            return
        if process:
            os.close(descriptor)
            self._send({"value": {"process": process}}, b"")
            return
        self._connection.close()
        self._connection = socket.socket(fileno=descriptor)
        os.dup2(descriptor, 0)  # the standard input is the socket of the first process
        if header["growth"]:
            limit_growth(header["growth"])

    def _receive(self) -> tuple[dict[str, Any], bytes, list[int]]:
        start, descriptors = self._read(SIZES.size, True)
        head, body = SIZES.unpack(start)
        header: dict[str, Any] = json.loads(self._read(head)[0])
        return header, self._read(body)[0], descriptors

    def _read(self, nbytes: int, is_first: bool = False) -> tuple[bytes, list[int]]:
        parts, descriptors = list[bytes](), list[int]()
        while nbytes:
            part, passed = (
                receive_some(self._connection, nbytes) if is_first else (self._connection.recv(min(nbytes, PART)), [])
            )
            if not part:
                sys.exit(0)
            parts.append(part)
            descriptors += passed
            nbytes -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts), descriptors

    def _send(self, header: Mapping[str, Any], content: bytes) -> None:
        encoded = json.dumps(header).encode()
        self._connection.sendall(SIZES.pack(len(encoded), len(content)) + encoded)
        self._connection.sendall(content)


def _answered(work: Callable[[], Result]) -> tuple[Mapping[str, Any], bytes]:
    """Return the header and the content of an answer: a result, or the reason why there is none."""
    try:
        result = work()
        return {"value": result.value}, result.content
    except ArgumentsRefused as error:
        return {"refused": str(error)[:MAX_REASON]}, b""
    except MemoryError:
        return {"failed": "it takes too much memory"}, b""
    except RecursionError:
        return {"failed": "it is nested too deeply"}, b""
    except BaseException as error:  # panics of packages in Rust are no `Exception`
        return {"failed": str(error)[:MAX_REASON] or type(error).__name__}, b""
