"""A process that has imported the tools already, and runs each command that a test asks for in a fork of itself.

Tests start a tool some thousand times; to import the compiler takes half a second of each. `tool_client.py` passes the
command on with its files, folder and environment. Where there is no `fork`, tests start the tools themselves.
"""

from __future__ import annotations

import array
import contextlib
import importlib
import json
import os
import select
import socket
import sys
from typing import NoReturn

IMPORTED = (
    "mirlo.tools.opt", "mirlo.tools.cli", "mirlo.dialects.relax", "mirlo.dialects.tir", "mirlo.frontends.onnx.importer",
    "mirlo.passes.legalize.legalize", "mirlo.passes.schedule.schedule", "mirlo.passes.memory.plan", "filecheck.main",
    "filecheck.parser", "filecheck.matcher",
)  # fmt: skip
"""What most commands import."""
STREAMS = 3


def serve(path: str) -> None:
    """Run commands until the process that started this one closes its standard input."""
    for name in IMPORTED:
        importlib.import_module(name)
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"{path}.new")
    server.listen(64)
    os.rename(f"{path}.new", path)  # who sees it can connect
    while sys.stdin not in select.select([server, sys.stdin], [], [])[0]:
        connection, _ = server.accept()
        wait_for_ended()
        if os.fork() == 0:
            server.close()
            run(connection)
        connection.close()
    os.unlink(path)
    os.rmdir(os.path.dirname(path))


def wait_for_ended() -> None:
    """Wait for the forks that have ended: their processor time is then this process's, which `cpu_times.py` reads."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def run(connection: socket.socket) -> NoReturn:
    """Run the command of a connection in a process of its own, and send its exit code."""
    files = array.array("i")
    data, ancillary, _, _ = connection.recvmsg(1 << 16, socket.CMSG_SPACE(STREAMS * files.itemsize))
    for _, _, content in ancillary:
        files.frombytes(content)
    while not data.endswith(b"\n"):
        data += connection.recv(1 << 16)
    command = json.loads(data)
    for stream, file in enumerate(files):
        os.dup2(file, stream)
        os.close(file)
    # The server's own streams know whether its files, not these, can be positioned.
    sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115
    os.chdir(command["folder"])
    os.environ.clear()
    os.environ.update(command["environment"])
    module, _, function = command["function"].partition(":")
    sys.argv = [module, *command["arguments"]]
    child = os.fork()
    if child == 0:
        connection.close()
        sys.exit(getattr(importlib.import_module(module), function)())
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    connection.sendall(code.to_bytes(4, "little", signed=True))
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])
