"""Files that are programs of other systems: how each form is recognized, and what opens it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.dialects.core.bytecode import BYTECODE_PREFIX
from mirlo.frontends.foreign import FrontendError
from mirlo.frontends.stablehlo.detect import is_portable
from mirlo.runtime.callbacks import callback, check_callbacks, is_a, is_flag, is_text, maps, required_callback
from mirlo.runtime.entry_points import installed_version
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    import numpy as np

    from mirlo.dialects.bindings import ir
    from mirlo.runtime.params import ParameterStore


_is_module = is_a("mirlo.dialects.bindings:ir.Module")
_is_store = is_a("mirlo.runtime.params:ParameterStore")


def _is_import(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and _is_module(value[0]) and _is_store(value[1])


@dataclass(frozen=True)
class FileForm:
    """A form of files that a front end opens."""

    name: str
    suffixes: tuple[str, ...]
    """What names of such files end with; files of other forms may end with the same."""
    matches: Callable[[bytes], bool] = required_callback("True or False", is_flag)
    """Returns whether the content of a file of such a name is in this form."""
    parse: Callable[[bytes, str], ir.Module] = required_callback("a Module of MLIR", _is_module)
    """Parses MLIR in the current context; the text is the name of the file, for errors."""
    open: Callable[[bytes, str], tuple[ir.Module, ParameterStore]] = required_callback(
        "a Module of MLIR and a ParameterStore", _is_import
    )
    """Imports MLIR to a module of relax, with its weights."""
    to_mlir: Callable[[Path], bytes] | None = callback("bytes of MLIR", lambda value: isinstance(value, bytes))
    """Makes MLIR of a file in another format; None if files are MLIR."""
    tools: tuple[str, ...] = ()
    """Installed packages that `to_mlir` depends on. Files of a form that names them refer to no other files, and what
    they are compiled to is kept in the cache."""
    states: Callable[[bytes, str], dict[str, np.ndarray]] | None = callback(
        "a dict of arrays by name", maps(is_text, is_a("numpy:ndarray"))
    )
    """Returns the first values of variables that MLIR keeps from call to call; None if there are none."""

    def __post_init__(self) -> None:
        check_callbacks(self, f"form of files '{self.name}'", FrontendError)


FORMS: list[FileForm] = []


def register_file_form(form: FileForm) -> FileForm:
    """Add a form of files, which is asked before those that are known."""
    FORMS.insert(0, form)
    return form


def has_form(path: str | os.PathLike[str]) -> bool:
    """Return whether the name of a file is one that files of a form have."""
    return Path(path).suffix.lower() in {suffix for form in FORMS for suffix in form.suffixes}


def form_of(path: str | Path, content: bytes) -> FileForm | None:
    """Return the form of a file, or None."""
    suffix = Path(path).suffix.lower()
    return next((form for form in FORMS if suffix in form.suffixes and form.matches(content)), None)


def tool_versions(path: str | Path) -> str | None:
    """Return the versions of the tools that convert files of such a name; None if it is not said what they are."""
    suffix = Path(path).suffix.lower()
    forms = [form for form in FORMS if suffix in form.suffixes]
    if not forms or not all(form.tools for form in forms):
        return None
    tools = sorted({tool for form in forms for tool in form.tools})
    return ", ".join(f"{tool} {version}" if (version := installed_version(tool)) else tool for tool in tools)


def forms_named(path: str | os.PathLike[str]) -> str:
    """Return the names of the forms that the name of a file stands for, as text."""
    suffix = Path(path).suffix.lower()
    return " or ".join(form.name for form in FORMS if suffix in form.suffixes)


def names_dialect(*dialects: str) -> Callable[[bytes], bool]:
    """Return a test whether MLIR, as text or as bytecode, has operations of one of these dialects."""
    listed = [dialect.encode() for dialect in dialects]
    operation = re.compile(rb"(?:\s|\")(?:" + b"|".join(listed) + rb")\.")

    def matches(content: bytes) -> bool:
        if content.startswith(BYTECODE_PREFIX):
            return any(b"\0" + dialect + b"\0" in content for dialect in listed)
        return operation.search(content) is not None

    return matches


# The front ends themselves are imported when a file is opened.


def _parse_stablehlo(content: bytes, name: str) -> ir.Module:
    from mirlo.frontends.stablehlo.parse import parse

    return parse(content, name)


def _open_stablehlo(content: bytes, name: str) -> tuple[ir.Module, ParameterStore]:
    from mirlo.frontends.stablehlo.importer import import_stablehlo

    return import_stablehlo(content, name)


def _parse_tosa(content: bytes, name: str) -> ir.Module:
    from mirlo.frontends.tosa.importer import parse

    return parse(content, name)


def _open_tosa(content: bytes, name: str) -> tuple[ir.Module, ParameterStore]:
    from mirlo.frontends.tosa.importer import import_tosa

    return import_tosa(content, name)


def _states_of_tosa(content: bytes, name: str) -> dict[str, np.ndarray]:
    from mirlo.frontends.tosa.importer import initial_states

    return initial_states(content, name)


def _from_flatbuffer(path: Path) -> bytes:
    from mirlo.frontends.tosa.tools import from_flatbuffer

    return from_flatbuffer(path)


def _from_tflite(path: Path) -> bytes:
    from mirlo.frontends.tosa.tools import from_tflite

    return from_tflite(path)


_MLIR = (".mlir", ".mlirbc")
_is_stablehlo = names_dialect("stablehlo", "vhlo", "chlo", "mhlo")
_TOSA = FileForm("TOSA", _MLIR, names_dialect("tosa"), _parse_tosa, _open_tosa, states=_states_of_tosa)
register_file_form(_TOSA)
register_file_form(
    FileForm(
        "StableHLO", _MLIR, lambda content: is_portable(content) or _is_stablehlo(content),
        _parse_stablehlo, _open_stablehlo,
    )
)  # fmt: skip
register_file_form(
    replace(
        _TOSA,
        suffixes=(".tosa",),
        matches=lambda content: content[4:8] == b"TOSA",
        to_mlir=_from_flatbuffer,
        tools=("tosa-tools",),
    )
)
register_file_form(
    replace(
        _TOSA, name="TensorFlow Lite", suffixes=(".tflite",), matches=lambda content: content[4:8] == b"TFL3",
        to_mlir=_from_tflite, tools=("tosa-converter-for-tflite",),
    )
)  # fmt: skip
