"""Reading MLIR bytecode that may be damaged: the reader ends the process where it meets what it does not expect.

Another process reads it, and hands over what it understood as bytecode of its own.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from typing import Any, NoReturn

from mirlo.dialects.bindings import ir
from mirlo.passes.files import BYTECODE_PREFIX, FileError
from mirlo.passes.locations import find_source_position

_SECONDS = 120
"""Processor time after which reading is given up: damaged sizes can make the reader run for ever."""
_GOOD, _BAD = b"M", b"E"
"""What the other process sends first: before a module, before the text of an error."""


def parse_file(path: str) -> ir.Module:
    """Parse a file of text or bytecode, in the current context."""
    with open(path, "rb") as file:
        is_bytecode = file.read(len(BYTECODE_PREFIX)) == BYTECODE_PREFIX
    if not is_bytecode or not hasattr(os, "fork"):
        return ir.Module.parseFile(path)
    return ir.Module.parse(read_in_child(lambda: ir.Module.parseFile(path), path))


def parse_bytes(content: str | bytes, name: str) -> ir.Module:
    """Parse text or bytecode, in the current context; `name` is for errors."""
    if isinstance(content, str) or not content.startswith(BYTECODE_PREFIX) or not hasattr(os, "fork"):
        return ir.Module.parse(content)
    return ir.Module.parse(read_in_child(lambda: ir.Module.parse(content), name))


def read_in_child(parse: Any, name: str) -> bytes:
    """Bytecode of what a copy of this process parses."""
    source, target = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Python warns of locks that other threads may hold; the copy only parses.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _send_parsed(parse, target)
    os.close(target)
    with open(source, "rb") as pipe:
        received = pipe.read()
    _, status = os.waitpid(child, 0)
    if status != 0 or received[:1] not in (_GOOD, _BAD):
        raise FileError(f"{name}: corrupt bytecode: write the file anew from its source")
    if received[:1] == _BAD:
        raise FileError(f"{name}: {received[1:].decode('utf-8', 'replace')}")
    return received[1:]


def _send_parsed(parse: Any, target: int) -> NoReturn:
    """Parse in the child process: send the result, and exit."""
    import faulthandler
    import resource

    faulthandler.disable()
    code = 1
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
        with open(target, "wb") as pipe:
            pipe.write(_parsed(parse))
        code = 0
    finally:
        os._exit(code)


def _parsed(parse: Any) -> bytes:
    try:
        module = parse()
    except ir.MLIRError as error:
        return _BAD + "\n".join(_messages(error)).encode("utf-8", "replace")
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return _GOOD + buffer.getvalue()


def _messages(error: ir.MLIRError) -> list[str]:
    """Return the messages of an error and of its notes."""
    found = []
    for diagnostic in error.error_diagnostics:
        place = find_source_position(diagnostic.location)
        found.append(f"{place}: {diagnostic.message}" if place is not None and place.line else diagnostic.message)
        found += [f"  note: {note.message}" for note in diagnostic.notes]
    return found or [str(error)]
