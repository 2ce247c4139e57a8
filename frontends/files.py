"""Files that are programs of other systems: how each form is recognized, and what opens it.

A package adds forms with an entry point in the group `mirlo.file_forms`: `NAME = "module:FORM"`, a `FileForm` or a
tuple of them. The entry point is named for the suffix of the files or the dialect of MLIR, so that files of packages
that are not installed are recognized. The module should import what opens a file when it is opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.frontends.foreign import FrontendError
from mirlo.runtime.callbacks import (
    callback,
    check_callbacks,
    is_a,
    is_flag,
    is_text,
    maps,
    required_callback,
)
from mirlo.runtime.entry_points import EntryPoint, installed_version, offered
from mirlo.runtime.known_packages import PACKAGES, install_command
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    import numpy as np

    from mirlo.dialects.bindings import ir
    from mirlo.runtime.params import ParameterStore

BYTECODE_PREFIX = b"ML\xefR"
"""What bytecode begins with."""


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


GROUP = "mirlo.file_forms"
CORE_SUFFIXES = (".onnx", ".mirlo", ".py")
"""What names of files end with for which no package is asked."""
FORMS: list[FileForm] = []
"""The forms that this process has registered."""
PRODUCER_BYTES = 64
"""Bytes at the start of bytecode that have the name of its producer."""


def register_file_form(form: FileForm) -> FileForm:
    """Add a form of files, which is asked before those that are known."""
    FORMS.insert(0, form)
    return form


def has_form(path: str | os.PathLike[str]) -> bool:
    """Return whether the name of a file is one that files of a form have."""
    return bool(_forms_for(path))


def form_of(path: str | Path, content: bytes) -> FileForm | None:
    """Return the form of a file, or None."""
    return next((form for form in _forms_for(path) if form.matches(content)), None)


def missing_package(path: str | os.PathLike[str], content: bytes | None = None) -> str | None:
    """Return the form of a file whose package is not installed, and the command that installs it; else None.

    Without its content a file is known by its name alone.
    """
    suffix = Path(path).suffix.lower()
    if suffix in CORE_SUFFIXES:
        return None
    installed = {entry.name for entry in offered(GROUP)}
    for name in PACKAGES["file_forms"]:
        if name not in installed and (suffix == f".{name}" or content is not None and _is_program_of(name, content)):
            return f"a program of {name}, which a package opens that is not installed: {install_command(GROUP, name)}"
    return None


def _is_program_of(dialect: str, content: bytes) -> bool:
    """Return whether MLIR has operations of a dialect, or is bytecode whose producer is named like it."""
    start = content[:PRODUCER_BYTES]
    is_its_own = start.startswith(BYTECODE_PREFIX) and dialect.encode() in start.lower()
    return is_its_own or names_dialect(dialect)(content)


def tool_versions(path: str | Path) -> str | None:
    """Return the versions of the tools that convert files of such a name; None if its form names no tools."""
    forms = _forms_for(path)
    if not forms or not all(form.tools for form in forms):
        return None
    tools = sorted({tool for form in forms for tool in form.tools})
    return ", ".join(f"{tool} {version}" if (version := installed_version(tool)) else tool for tool in tools)


def forms_named(path: str | os.PathLike[str]) -> str:
    """Return the names of the forms that the name of a file stands for, as text."""
    return " or ".join(form.name for form in _forms_for(path))


def _forms_for(path: str | os.PathLike[str]) -> list[FileForm]:
    """Return the forms of files of such a name: those registered in this process, then those of packages."""
    suffix = Path(path).suffix.lower()
    known = FORMS if suffix in CORE_SUFFIXES else [*FORMS, *_forms_of_packages(tuple(offered(GROUP)))]
    return [form for form in known if suffix in form.suffixes]


@cache
def _forms_of_packages(entries: tuple[EntryPoint, ...]) -> tuple[FileForm, ...]:
    forms: list[FileForm] = []
    for entry in entries:
        value = entry.load_for("form of files", FrontendError)
        loaded = value if isinstance(value, tuple) else (value,)
        for form in loaded:
            if not isinstance(form, FileForm):
                raise FrontendError(entry.unexpected(value, "a FileForm, or a tuple of them"))
            forms.append(form)
    return tuple(forms)


def names_dialect(*dialects: str) -> Callable[[bytes], bool]:
    """Return a test whether MLIR, as text or as bytecode, has operations of one of these dialects."""
    listed = [dialect.encode() for dialect in dialects]
    operation = re.compile(rb"(?:\s|\")(?:" + b"|".join(listed) + rb")\.")

    def matches(content: bytes) -> bool:
        if content.startswith(BYTECODE_PREFIX):
            return any(b"\0" + dialect + b"\0" in content for dialect in listed)
        return operation.search(content) is not None

    return matches
