"""Shared libraries that are bytes: opened from files that only this process has."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable
from ctypes import CDLL

from mirlo.runtime.errors import ArtifactError
from mirlo.runtime.system import LIBRARY_SUFFIX, can_remove_open_files, close_library


def open_library(content: bytes) -> CDLL:
    """Open a shared library for as long as the process runs."""
    return open_bytes(content, LIBRARY_SUFFIX)[0]


def cannot_open(error: OSError) -> str:
    """Describe the error of a library that cannot be opened."""
    return f"its library cannot be opened: {error}"


def open_bytes(data: bytes, suffix: str, explain: Callable[[OSError], str] = cannot_open) -> tuple[CDLL, str]:
    """Open a shared library; return it and the path of its file, for `close`. `explain` describes an error."""
    # Each load uses a file of its own: libraries loaded from one path would share their memory.
    handle, path = tempfile.mkstemp(prefix="mirlo-c-", suffix=suffix)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        return ctypes.CDLL(path), path
    except OSError as error:
        os.unlink(path)
        raise ArtifactError(explain(error)) from error
    finally:
        # Unlink the file while it is open where the system allows it, so that a killed process leaves nothing behind.
        if can_remove_open_files() and os.path.exists(path):
            os.unlink(path)


def close(library: CDLL, path: str) -> None:
    """Close a shared library and remove its file."""
    close_library(library._handle)
    if os.path.exists(path):
        os.unlink(path)
