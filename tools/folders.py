"""Folders with models that packages open, by the entry point group `mirlo.folders`: `NAME = "module:FORM"`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mirlo.runtime.callbacks import ANYTHING, callback, check_callbacks, is_flag, required_callback
from mirlo.runtime.entry_points import offered
from mirlo.runtime.errors import MirloError
from mirlo.runtime.known_packages import PACKAGES
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.tools.quantize.options import Quantization

GROUP = "mirlo.folders"


class FolderQuantization(NamedTuple):
    """A request to quantize the weights of a model in a folder."""

    source: Path
    target: Path
    """The folder to write."""
    options: Quantization
    text: str | None
    """A file with text that is typical of what the model reads."""
    samples: int | None
    """Parts of the text that are read at most; None for the package's default."""
    threads: int
    progress: Callable[[str], object]
    """Called with the name of each step."""


class QuantizedFolder(NamedTuple):
    """The result of quantizing a folder."""

    products: int
    """Products whose weights have fewer bits."""
    errors: object | None
    """What `mirlo quantize` prints of the errors on the text, if there is one."""


class FolderError(MirloError):
    """Raised for a folder that no installed package opens."""

    error_code = "MIR0703"
    remedy = "Name a folder with a model of a form that an installed package opens."


@dataclass(frozen=True)
class FolderForm:
    """Folders with a model of some form."""

    accepts: Callable[[str], bool] = required_callback("whether a folder has this form, True or False", is_flag)
    """Return whether a folder has this form."""
    open: Callable[[str], Any] = required_callback(*ANYTHING)
    """Return what `mirlo.compile` takes for a folder."""
    quantize: Callable[[FolderQuantization], QuantizedFolder] | None = callback(
        "a QuantizedFolder", lambda value: isinstance(value, QuantizedFolder)
    )

    def __post_init__(self) -> None:
        check_callbacks(self, "form of folders", FolderError)


def folder_form(folder: str | os.PathLike[str]) -> FolderForm:
    """Return the form of a folder with a model."""
    path = os.fspath(folder)
    entries = offered(GROUP)
    for entry in entries:
        form: FolderForm = entry.load()
        if form.accepts(path):
            return form
    known = PACKAGES["folders"]
    missing = [f"{name}: pip install {known[name]}" for name in known if name not in {each.name for each in entries}]
    forms = ", ".join(each.name for each in entries) or "none"
    hint = f"; packages open more ({', '.join(missing)})" if missing else ""
    raise FolderError(f"{path}: expected a folder of a known form ({forms}), found none of its files{hint}")
