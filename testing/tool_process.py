"""Start the server of `tool_server.py`, for tests of pytest and of lit."""

from __future__ import annotations

import atexit
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping

from mirlo.testing import tool_client

LIT_TOOLS = {
    "mirlo-opt": "mirlo.tools.opt:command",
    "mirlo": "mirlo.tools.cli:command",
    "FileCheck": "filecheck.main:main",
}
"""Tools that tests of lit call, and the functions that run them."""


def start(environment: Mapping[str, str]) -> str:
    """Return the path of the socket of a new server, which ends with this process."""
    path = os.path.join(tempfile.mkdtemp(prefix="mirlo-tools-"), "socket")
    command = [sys.executable, "-m", "mirlo.testing.tool_server", path]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    assert server.stdin is not None
    atexit.register(server.stdin.close)
    while not os.path.exists(path):
        if server.poll() is not None:
            raise RuntimeError("the server of the tools does not start")
        time.sleep(0.01)
    return path


def tool_substitutions(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the substitutions of lit for `LIT_TOOLS`, which run in forks of a server where there is `fork`."""
    commands = {tool: f"{sys.executable} -m {function.partition(':')[0]}" for tool, function in LIT_TOOLS.items()}
    if hasattr(os, "fork"):
        path = start({**os.environ, **environment})
        client = f"{sys.executable} -I -S {tool_client.__file__} {path}"
        commands = {tool: f"{client} {function}" for tool, function in LIT_TOOLS.items()}
    return [(rf"(?<![-\w./%]){re.escape(tool)}(?![-\w./])", command) for tool, command in commands.items()]
