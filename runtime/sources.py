"""Digests of the compiler's sources and versions of its libraries, on which all that is cached depends."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from mirlo.runtime.entry_points import installed_version

ROOT = Path(__file__).resolve().parents[1]
CODE_FOLDERS = ("dialects", "passes", "targets", "runtime")
"""What a code generator may import, and so what the code of a kernel may depend on. These are folders and no list of
files: none can be forgotten. The import graph of the code generator has two thirds of them already."""
MODEL_FOLDERS = (*CODE_FOLDERS, "frontends", "driver", "extend")
"""What a compiled model depends on: packages declare options of compilations through `extend`."""
_LIBRARIES = ("torch-mlir", "mlir-python-bindings", "numpy", "onnx", "ml_dtypes", "llvmlite")
_GENERATED = ("__pycache__",)


def code_version() -> str:
    """Return what the code of a kernel depends on besides its IR and the machine, as a key."""
    return compiler_digest(CODE_FOLDERS)


@cache
def compiler_digest(folders: tuple[str, ...]) -> str:
    """Return a digest of these folders of Mirlo, and of the versions of the libraries that they use."""
    import hashlib  # takes 7 ms, and the helps of commands import this module

    parts = [*library_versions(), *(_digest_of_folder(folder) for folder in folders)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@cache
def library_versions() -> tuple[str, ...]:
    """Return names and versions of the installed libraries that the compiler uses."""
    versions = {name: installed_version(name) for name in _LIBRARIES}
    return tuple(f"{name} {version}" for name, version in versions.items() if version is not None)


def digest_of_sources(places: Iterable[Path]) -> str:
    """Return a digest of the names and contents of all files in these folders, or of these files."""
    import hashlib

    digest = hashlib.sha256()
    for place in map(str, places):
        for file in _files_in(place):
            content = _content(file)
            digest.update(f"{file.removeprefix(place)} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()


@cache
def _digest_of_folder(folder: str) -> str:
    return digest_of_sources([ROOT / folder])


def _files_in(place: str) -> Iterator[str]:
    """Yield the files of a folder in order, without what Python generates from them; or the file itself."""
    # With what is quick, here and below: it is a thousand files, before anything else can be done.
    if not os.path.isdir(place):
        yield place
    for folder, folders, files in os.walk(place):
        folders[:] = sorted(name for name in folders if name not in _GENERATED)
        yield from (f"{folder}{os.sep}{name}" for name in sorted(files))


def _content(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except FileNotFoundError:
        return b""  # a link to nothing, as editors make beside a file
