"""Parsing of MLIR bytecode that may be corrupt, which can crash MLIR's reader.

A child process parses it and returns the module as new bytecode.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable

from mirlo.dialects.bindings import ir
from mirlo.frontends.files import BYTECODE_PREFIX
from mirlo.frontends.foreign import FrontendError
from mirlo.passes.files import FileError
from mirlo.passes.locations import find_source_position
from mirlo.runtime import processes
from mirlo.runtime.files import open_regular

_SECONDS = 120
"""Processor time after which reading is given up: damaged sizes can make the reader run for ever."""
_GOOD, _BAD = b"M", b"E"
"""What the other process sends first: before a module, before the text of an error."""


def parse_file(path: str) -> ir.Module:
    """Parse a file of text or bytecode, in the current context."""
    with open_regular(path) as file:
        is_bytecode = file.read(len(BYTECODE_PREFIX)) == BYTECODE_PREFIX
    if not is_bytecode or not processes.can_fork():
        return ir.Module.parseFile(path)
    return ir.Module.parse(read_in_child(lambda: ir.Module.parseFile(path), path))


def parse_bytes(content: str | bytes, name: str) -> ir.Module:
    """Parse text or bytecode, in the current context; `name` is for errors."""
    if isinstance(content, str) or not content.startswith(BYTECODE_PREFIX) or not processes.can_fork():
        return ir.Module.parse(content)
    return ir.Module.parse(read_in_child(lambda: ir.Module.parse(content), name))


def read_in_child(parse: Callable[[], ir.Module], name: str) -> bytes:
    """Parse a module in a forked child process; return it as bytecode."""
    with open(os.devnull, "wb") as nowhere:
        # The copy only parses: what it prints is not for readers.
        ended = processes.run_forked(
            lambda: _parsed(parse), output=nowhere.fileno(), errors=nowhere.fileno(), cpu_seconds=_SECONDS
        )
    received = ended.content
    if ended.code != 0 or received[:1] not in (_GOOD, _BAD):
        raise FileError(f"{name}: corrupt bytecode: write the file anew from its source")
    if received[:1] == _BAD:
        raise FileError(f"{name}: {received[1:].decode('utf-8', 'replace')}")
    return received[1:]


def _parsed(parse: Callable[[], ir.Module]) -> bytes:
    try:
        module = parse()
    except FrontendError as error:
        return _BAD + str(error).encode("utf-8", "replace")
    except ir.MLIRError as error:
        return _BAD + "\n".join(_messages(error)).encode("utf-8", "replace")
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return _GOOD + buffer.getvalue()


def _messages(error: ir.MLIRError) -> list[str]:
    """Return the messages of an error and of its notes."""
    messages = []
    for diagnostic in error.error_diagnostics:
        position = find_source_position(diagnostic.location)
        messages.append(
            f"{position}: {diagnostic.message}" if position is not None and position.line else diagnostic.message
        )
        messages += [f"  note: {note.message}" for note in diagnostic.notes]
    return messages or [str(error)]
