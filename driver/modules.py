"""Modules that a tool reads: IR with the parameters that it refers to."""

from __future__ import annotations

import importlib
import os

from mirlo.dialects.bindings import ir
from mirlo.driver.bytecode import parse_file
from mirlo.driver.type_sizes import require_type_sizes
from mirlo.passes.files import FileError, listed_params, open_params, save_params
from mirlo.passes.session import Session
from mirlo.runtime.files import read_regular, write_regular

PARAM_READERS = {".onnx": "mirlo.frontends.onnx.model"}
"""Modules that register a reader for parameter files of a kind; imported when one is listed, because they are large."""


def read_module(path: str | os.PathLike[str], session: Session) -> ir.Module:
    """Read a file of IR, text, bytecode or script, in the current context; its parameters go to the session's store.

    A script (.py) is parsed, never executed.
    """
    module = _read_script(path) if is_script(path) else parse_file(os.fspath(path))
    require_type_sizes(module)
    load_params(module, os.path.dirname(os.path.abspath(path)), session)
    return module


def load_params(module: ir.Module, folder: str, session: Session) -> None:
    """Open the parameter files that a module lists, whatever their kind."""
    for name in listed_params(module):
        reader = PARAM_READERS.get(os.path.splitext(name)[1].lower())
        if reader is not None:
            importlib.import_module(reader)
    open_params(module, folder, session)


def is_script(path: str | os.PathLike[str]) -> bool:
    return os.fspath(path).endswith(".py")


def _read_script(path: str | os.PathLike[str]) -> ir.Module:
    from mirlo.frontends.script.module import parse_script

    try:
        text = read_regular(path).decode("utf-8")
    except OSError as error:
        raise FileError(f"cannot read '{os.fspath(path)}': {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise FileError(f"{os.fspath(path)}: not a script: byte {error.start} is not UTF-8") from None
    return parse_script(text, os.fspath(path), ir.Context.current)


def script_text(module: ir.Module) -> str:
    """Return a module as script, which `read_module` reads."""
    from mirlo.frontends.script.printer import script_of

    return script_of(module)


def write_script(module: ir.Module, path: str | os.PathLike[str], session: Session) -> None:
    """Write a module to a file as script, with what its parameters need."""
    try:
        save_params(module, path, session)
        write_regular(path, script_text(module))
    except OSError as error:
        raise FileError(f"cannot write '{error.filename or path}': {error.strerror or error}") from error
