"""Start the server of `tool_server.py`."""

import atexit
import os
import subprocess
import sys
import tempfile
import time


def start(environment):
    """Return the path of the socket of a new server, which ends with this process."""
    path = os.path.join(tempfile.mkdtemp(prefix="mirlo-tools-"), "socket")
    command = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "tool_server.py"), path]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    atexit.register(server.stdin.close)
    while not os.path.exists(path):
        if server.poll() is not None:
            raise RuntimeError("the server of the tools does not start")
        time.sleep(0.01)
    return path
