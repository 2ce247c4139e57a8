"""A process that has imported the tools already, and runs each command that a test asks for in a fork of itself.

Tests start a tool some thousand times; to import the compiler takes half a second of each. `tool_client.py` passes the
command on with its files, folder and environment. Where there is no `fork`, tests start the tools themselves.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import marshal
import os
import runpy
import select
import signal
import socket
import sys
import types
import warnings
from collections.abc import Callable
from typing import NoReturn

from mirlo.dialects.core import installed
from mirlo.passes.rules import RuleWarning
from mirlo.targets.llvm import TARGET as LLVM
from mirlo.testing.tool_client import NO_FORKS
from mirlo.testing.unoptimized import UNOPTIMIZED, unoptimized

IMPORTED = (
    "mirlo.tools.opt", "mirlo.tools.cli", "mirlo.dialects.relax", "mirlo.dialects.tir", "mirlo.frontends.onnx.importer",
    "mirlo.passes.legalize.legalize", "mirlo.passes.schedule.schedule", "mirlo.passes.memory.plan", "filecheck.main",
    "filecheck.parser", "filecheck.matcher", "mirlo.tools.cli.run", "mirlo.tools.cli.files", "mirlo.tools.bench",
    "mirlo.driver.compile", "mirlo.driver.compiler", "mirlo.runtime.program", "mirlo.passes.lower.expansions",
    *LLVM.rule_modules, "mirlo.targets.llvm.pipeline", "mirlo.targets.llvm.emit", "mirlo.targets.llvm.nbits.convert",
    "mirlo.targets.llvm.winograd.convert", "mirlo.targets.llvm.trees.convert", "mirlo.targets.llvm.pack_weights",
    "mirlo.passes.graph.rewrite", "mirlo.passes.graph.fold_constant", "mirlo.passes.graph.layout",
    "mirlo.passes.fuse.fuse_tir", "mirlo.passes.lower.loops", "mirlo.passes.bounds.verify_bounds",
    "mirlo.passes.schedule.primitives.emit", "mirlo.driver.tune.database", "mirlo.tools.cli.compile",
    "mirlo.tools.cli.explaining", "onnx", "numpy.random", "llvmlite.binding",
)  # fmt: skip
"""What most commands import, in the order in which they do."""
PACKAGES = ("mirlo.frontends.onnx.ops", "mirlo.passes.graph.rules", "mirlo.passes.legalize.rules")
"""All modules of these."""
STREAMS = 3


def serve(path: str) -> None:
    """Run commands until the process that started this one closes its standard input."""
    if sys.platform == "win32":
        raise OSError(NO_FORKS)
    for name in IMPORTED:
        importlib.import_module(name)
    for name in PACKAGES:
        installed.import_modules(name)
    warnings.simplefilter("error", RuleWarning)
    gc.freeze()  # forks do not write to what lasts
    gc.set_threshold(50_000)  # they end before there is much garbage in cycles
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"{path}.new")
    server.listen(64)
    os.rename(f"{path}.new", path)  # who sees it can connect
    ended, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, socket.socket] = {}
    while sys.stdin not in (ready := select.select([server, ended, sys.stdin], [], [])[0]):
        if ended in ready:
            ended.recv(1 << 16)
            report_ended(running)
        if server in ready:
            connection, _ = server.accept()
            process = os.fork()
            if process == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for other in (server, ended, waker, *running.values()):
                    other.close()
                run(connection)
            running[process] = connection
    os.unlink(path)
    os.rmdir(os.path.dirname(path))


def report_ended(running: dict[int, socket.socket]) -> None:
    """Send the exit codes of ended forks to the clients that wait for them."""
    if sys.platform == "win32":
        raise OSError(NO_FORKS)
    while running:
        process, status = os.waitpid(-1, os.WNOHANG)
        if not process:
            return
        with running.pop(process) as connection, contextlib.suppress(OSError):  # the client may have ended
            connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "little", signed=True))


def run(connection: socket.socket) -> NoReturn:
    """Run the command of a connection in this process, and end it."""
    if sys.platform == "win32":
        raise OSError(NO_FORKS)
    files = array.array("i")
    data, ancillary, _, _ = connection.recvmsg(1 << 16, socket.CMSG_SPACE(STREAMS * files.itemsize))
    for _, _, content in ancillary:
        files.frombytes(content)
    length = int.from_bytes(data, "little")
    command = bytearray()
    while len(command) < length:
        command += connection.recv(length - len(command))
    connection.close()
    module, function, arguments, folder, environment = marshal.loads(command)
    for stream, file in enumerate(files):
        os.dup2(file, stream)
        os.close(file)
    # The server's own streams know whether its files, not these, can be positioned.
    sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    folders = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [folder for folder in folders if folder and folder not in sys.path]
    sys.argv = [module, *arguments]
    if UNOPTIMIZED in environment:
        unoptimized().__enter__()
    leave(getattr(importlib.import_module(module), function))


def run_script() -> None:
    """Run what the arguments name, a file, or `-c` or `-m` with code or a module, as `python` does."""
    del sys.argv[0]
    if sys.argv[0] == "-c":
        sys.path.insert(0, os.getcwd())
        code = compile(sys.argv.pop(1), "<string>", "exec")
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(code, vars(main))
    elif sys.argv[0] == "-m":
        sys.path.insert(0, os.getcwd())
        runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
        runpy.run_path(sys.argv[0], run_name="__main__")


def leave(command: Callable[[], object]) -> NoReturn:
    """Run a command and end the process, without taking apart all modules that the server has imported: 0.2 s."""
    try:
        code = command()
    except SystemExit as ended:
        code = ended.code
    if not isinstance(code, (int, type(None))):
        sys.exit(str(code))
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    del sys.path[0]  # the folder in which it was started
    serve(sys.argv[1])
