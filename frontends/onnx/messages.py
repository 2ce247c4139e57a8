"""The messages of ONNX's files, without the rest of the package `onnx`, which takes 0.1 s to import."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

_MODULE = "onnx_ml_pb2"


@cache
def messages() -> Any:
    """Return a module with the classes `ModelProto`, `FunctionProto` and others: those of `onnx`, imported or not.

    protobuf keeps one class for each message, whichever module asks for it first.
    """
    if "onnx" in sys.modules:
        return sys.modules["onnx"]
    package = find_spec("onnx")
    for folder in (package and package.submodule_search_locations) or ():
        spec = spec_from_file_location(f"_mirlo_{_MODULE}", Path(folder) / f"{_MODULE}.py")
        if spec is not None and spec.loader is not None and Path(folder, f"{_MODULE}.py").exists():
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    return importlib.import_module("onnx")
