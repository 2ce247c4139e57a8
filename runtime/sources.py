"""Digests of the compiler's sources and versions of its libraries, on which all that is cached depends."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

from mirlo.runtime.entry_points import installed_version
from mirlo.runtime.system import file_state

ROOT = Path(__file__).resolve().parents[1]
CODE_FOLDERS = ("dialects", "passes", "targets", "runtime")
"""What a code generator may import, and so what the code of a kernel may depend on. These are folders and no list of
files: none can be forgotten. The import graph of the code generator has two thirds of them already."""
MODEL_FOLDERS = (*CODE_FOLDERS, "frontends", "driver", "extend")
"""What a compiled model depends on: packages declare options of compilations through `extend`."""
_LIBRARIES = ("torch-mlir", "mlir-python-bindings", "numpy", "onnx", "ml_dtypes", "llvmlite")
_GENERATED = ("__pycache__",)
_LEAST_AGE = 2_000_000_000
"""Nanoseconds after a change of a file in which another one may have the same time: FAT rounds to two seconds."""


def code_version() -> str:
    """Return what the code of a kernel depends on besides its IR and the machine, as a key."""
    return compiler_digest(CODE_FOLDERS)


def model_version(extensions: Iterable[Path]) -> str:
    """Return what a compiled model depends on besides its file, its options and the machine, as a key.

    `extensions` are the folders or files of the packages that extend the compiler.
    """
    others = [ROOT / folder for folder in MODEL_FOLDERS if folder not in CODE_FOLDERS]
    return f"{code_version()} {digest_of_sources([*others, *extensions])}"


@cache
def compiler_digest(folders: tuple[str, ...]) -> str:
    """Return a digest of these folders of Mirlo, and of the versions of the libraries that they use."""
    import hashlib  # takes 7 ms, and the helps of commands import this module

    parts = [*library_versions(), digest_of_sources(ROOT / folder for folder in folders)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@cache
def library_versions() -> tuple[str, ...]:
    """Return names and versions of the installed libraries that the compiler uses."""
    versions = {name: installed_version(name) for name in _LIBRARIES}
    return tuple(f"{name} {version}" for name, version in versions.items() if version is not None)


def digest_of_sources(places: Iterable[Path]) -> str:
    """Return a digest of the names and contents of all files in these folders, or of these files.

    The user's cache has it by the paths and states of the files, so that they are read once after each change.
    """
    names = [os.fspath(place) for place in places]
    return _kept("sources", names, lambda: _digest_of_contents(names))


def digest_of_unchanged(path: str | os.PathLike[str]) -> str:
    """Return `digest_of_file` of a file; of a large one the user's cache has it, until the file is changed."""
    from mirlo.runtime.cache import LARGE_FILE, digest_of_file  # imports `hashlib`

    if os.stat(path).st_size < LARGE_FILE:
        return digest_of_file(path)
    return _kept("file", [os.path.realpath(path)], lambda: digest_of_file(path))


def _kept(kind: str, names: Sequence[str], compute: Callable[[], str]) -> str:
    """Return a digest of files: computed, or from the user's cache by the states of the files."""
    from mirlo.runtime.cache import OBJECTS, Cache, default_folder

    state = _state_of(kind, names)
    if state is None:
        return compute()
    cached = Cache(default_folder())
    content = cached.get(OBJECTS, state)
    if content is not None:
        return content.decode()
    digest = compute()
    if _state_of(kind, names) == state:
        cached.put(OBJECTS, state, digest.encode())
    return digest


def _digest_of_contents(places: Iterable[str]) -> str:
    import hashlib

    digest = hashlib.sha256()
    for number, place in enumerate(places):
        for file in _files_in(place):
            content = _content(file)
            digest.update(f"{number} {file.removeprefix(place)} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()


def _state_of(kind: str, places: Iterable[str]) -> str | None:
    """Return a digest of the paths and states of all files; None where it may stay the same after a change."""
    import hashlib

    states: list[tuple[str | int, ...]] = []
    newest = 0
    for place in places:
        files = tuple(_files_in(place))
        states.append((place, *files))
        for file in files:
            try:
                state = file_state(os.stat(file))
            except FileNotFoundError:
                state = (0,)
            if state is None:
                return None
            states.append(state)
            newest = max(newest, state[-1])
    if newest >= time.time_ns() - _LEAST_AGE:
        return None
    return hashlib.sha256(f"{kind} {states}".encode()).hexdigest()[:40]


def _files_in(place: str) -> list[str]:
    """Return the files of a folder in order, without what Python generates from them; or the file itself."""
    # With what is quick, here and below: it is a thousand files, before anything else can be done.
    if not os.path.isdir(place):
        return [place]
    files, folders = [], [place]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if not entry.is_dir():
                    files.append(entry.path)
                elif entry.name not in _GENERATED and not entry.is_symlink():
                    folders.append(entry.path)
    return sorted(files)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except FileNotFoundError:
        return b""  # a link to nothing, as editors make beside a file
