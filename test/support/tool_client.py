"""Run a command in a fork of `tool_server.py`: `tool_client.py SOCKET MODULE:FUNCTION ARGUMENTS...`."""

import json
import os
import socket
import sys

path, function, *arguments = sys.argv[1:]
with socket.socket(socket.AF_UNIX) as server:
    server.connect(path)
    command = {"function": function, "arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
    socket.send_fds(server, [b" "], [0, 1, 2])
    server.sendall(json.dumps(command).encode() + b"\n")
    code = server.recv(1)
sys.exit(code[0] if code else "the server of the tools has ended")
