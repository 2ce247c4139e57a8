"""Modules that a tool reads: IR with the parameters that it refers to."""

from __future__ import annotations

import importlib
import os
from typing import Any

from mirlo.passes.files import listed_params, open_params
from mirlo.passes.session import Session
from mirlo.tools.bytecode import parse_file

PARAM_READERS = {".onnx": "mirlo.frontends.onnx.params"}
"""Modules that register a reader for parameter files of a kind; imported when one is listed, because they are large."""


def read_module(path: str | os.PathLike[str], session: Session) -> Any:
    """Read IR, text or bytecode, from a file, in the current context; its parameters go into the session's store."""
    module = parse_file(os.fspath(path))
    load_params(module, os.path.dirname(os.path.abspath(path)), session)
    return module


def load_params(module: Any, folder: str, session: Session) -> None:
    """Open the parameter files that a module lists, whatever their kind."""
    for name in listed_params(module):
        reader = PARAM_READERS.get(os.path.splitext(name)[1].lower())
        if reader is not None:
            importlib.import_module(reader)
    open_params(module, folder, session)
