"""The forms of files: TOSA as MLIR and as flatbuffers, TensorFlow Lite.

The front end is imported when a file is opened.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.extend.files import FileForm, names_dialect

if TYPE_CHECKING:
    import numpy as np

    from mirlo.extend.frontend import ParameterStore, ir


def _parse(content: bytes, name: str) -> ir.Module:
    from mirlo_tflite.importer import parse

    return parse(content, name)


def _open(content: bytes, name: str) -> tuple[ir.Module, ParameterStore]:
    from mirlo_tflite.importer import import_tosa

    return import_tosa(content, name)


def _states(content: bytes, name: str) -> dict[str, np.ndarray]:
    from mirlo_tflite.importer import initial_states

    return initial_states(content, name)


def _from_flatbuffer(path: Path) -> bytes:
    from mirlo_tflite.tools import from_flatbuffer

    return from_flatbuffer(path)


def _from_tflite(path: Path) -> bytes:
    from mirlo_tflite.tools import from_tflite

    return from_tflite(path)


MLIR = FileForm("TOSA", (".mlir", ".mlirbc"), names_dialect("tosa"), _parse, _open, states=_states)
FLATBUFFER = replace(
    MLIR, suffixes=(".tosa",), matches=lambda content: content[4:8] == b"TOSA", to_mlir=_from_flatbuffer,
    tools=("tosa-tools",),
)  # fmt: skip
TOSA = (FLATBUFFER, MLIR)
TFLITE = replace(
    MLIR, name="TensorFlow Lite", suffixes=(".tflite",), matches=lambda content: content[4:8] == b"TFL3",
    to_mlir=_from_tflite, tools=("tosa-converter-for-tflite",),
)  # fmt: skip
