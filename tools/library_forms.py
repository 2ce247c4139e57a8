"""The forms of libraries: those of Mirlo, and those of installed packages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from mirlo.passes.code_forms import LibraryForm
from mirlo.runtime.artifact import Artifact
from mirlo.runtime.entry_points import offered
from mirlo.runtime.params import ParameterStore
from mirlo.targets.llvm.library.build import write_library

GROUP = "mirlo.library_forms"


def _linked(
    artifact: Artifact, store: ParameterStore, folder: Path, name: str, weights: str, shared: bool
) -> Sequence[Path]:
    return write_library(artifact, store, folder, name, shared=shared, weights=weights)


def _source(artifact: Artifact, store: ParameterStore, folder: Path, name: str, weights: str) -> Sequence[Path]:
    from mirlo.targets.c.library import write_source

    return write_source(artifact, store, folder, name, weights)


BUILT_IN = (
    LibraryForm("library", "a shared library, with headers for C, C++ and Rust", partial(_linked, shared=True)),
    LibraryForm("object", "object files, with headers", partial(_linked, shared=False)),
    LibraryForm("source", "the whole model as C", _source, source=True),
)


@cache
def library_forms() -> Mapping[str, LibraryForm]:
    """Return the forms by name."""
    forms = {form.name: form for form in BUILT_IN}
    for entry in offered(GROUP):
        form = entry.load()
        if not isinstance(form, LibraryForm) or form.name != entry.name or form.name in forms:
            raise ValueError(
                f"entry point '{entry.name}' of '{GROUP}', {entry.value}: expected a LibraryForm of this name that no "
                f"other one has, found {form!r}"
            )
        forms[form.name] = form
    return forms
