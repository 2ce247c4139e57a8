"""Modules in files: IR as text or bytecode, and the parameter files that it references.

A module with weights lists their files in its attribute `relax.params`, relative to the folder of the IR file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirlo.dialects.bindings import ir
from mirlo.runtime.errors import MirloError, ParameterError
from mirlo.runtime.files import read_regular, replacing, write_regular

if TYPE_CHECKING:
    from mirlo.passes.session import Session

PARAMS = "relax.params"


class FileError(MirloError):
    """Raised for a file that cannot be read or written."""

    error_code = "MIR0405"
    remedy = "Name a file that exists, can be read, and has the form that is expected."


def open_params(module: ir.Module, folder: str | os.PathLike[str], session: Session) -> None:
    """Open the parameter files that a module lists, and add them to the session's store.

    A file in another format than that of `ParameterStore.save` needs a registered reader.
    """
    for name in listed_params(module):
        try:
            session.params.open(Path(folder) / name)
        except (ParameterError, OSError) as error:
            raise FileError(f"cannot open '{name}', which the module's attribute '{PARAMS}' lists: {error}") from error


def save_params(module: ir.Module | ir.OpView, path: str | os.PathLike[str], session: Session) -> None:
    """Record the parameter files of a module that is about to be written to `path`.

    Parameters that are in no file are written to a new one, `path` with `.params` appended.
    """
    if session.has_params:
        if session.params.unsaved():
            session.params.save(f"{path}.params", session.params.unsaved())
        list_params(module, os.path.dirname(os.path.abspath(path)), session)


def list_params(module: ir.Module | ir.OpView, folder: str, session: Session) -> None:
    """Record the parameter files of a module, with paths relative to a folder."""
    if not session.has_params:
        return
    store = session.params
    files = dict.fromkeys(source for name in store.names() if (source := store.source(name)))
    listed = [ir.StringAttr.get(_relative(file, folder), context=module.context) for file in files]
    module.operation.attributes[PARAMS] = ir.ArrayAttr.get(listed, context=module.context)


def write_ir(
    module: ir.Module | ir.OpView,
    path: str | os.PathLike[str],
    session: Session,
    *,
    bytecode: bool = False,
    header: str = "",
    footer: str = "",
    append: bool = False,
    bytecode_version: int | None = None,
    **printing: Any,
) -> None:
    """Write a module to a file, together with its parameters; `printing` is passed to MLIR's `get_asm`."""
    try:
        save_params(module, path, session)
        if bytecode:
            with replacing(path) as file:
                module.operation.write_bytecode(file, bytecode_version)
            return
        before = read_regular(path) if append and os.path.isfile(path) else b""
        text = f"{header}{module.operation.get_asm(**printing).rstrip()}\n{footer}"
        write_regular(path, before + text.encode())
    except OSError as error:
        raise FileError(f"cannot write '{error.filename or path}': {error.strerror or error}") from error


def listed_params(module: ir.Module) -> list[str]:
    """Return the parameter files that a module lists."""
    attributes = module.operation.attributes
    if PARAMS not in attributes:
        return []
    value = attributes[PARAMS]
    if not isinstance(value, ir.ArrayAttr) or not all(isinstance(name, ir.StringAttr) for name in value):
        raise FileError(f"the module's attribute '{PARAMS}' must be a list of file names, got {value}")
    return [name.value for name in value]


def _relative(file: Path, folder: str) -> str:
    try:
        return Path(os.path.relpath(file, folder)).as_posix()
    except ValueError:
        # on Windows there is no relative path to another drive
        return str(file)
