"""Run a command in a fork of `tool_server.py`: `tool_client.py SOCKET MODULE:FUNCTION ARGUMENTS...`."""

import json
import os
import socket
import sys


def run(path, function, arguments, folder, environment, files):
    """Return the exit code of a command with these standard streams; it is negative if a signal ended it."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        command = {"function": function, "arguments": arguments, "folder": folder, "environment": environment}
        socket.send_fds(server, [b" "], files)
        server.sendall(json.dumps(command).encode() + b"\n")
        code = server.recv(4, socket.MSG_WAITALL)
    if not code:
        sys.exit("the server of the tools has ended")
    return int.from_bytes(code, "little", signed=True)


if __name__ == "__main__":
    code = run(*sys.argv[1:3], sys.argv[3:], os.getcwd(), dict(os.environ), [0, 1, 2])
    sys.exit(code if code >= 0 else 128 - code)
