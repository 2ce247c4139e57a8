"""Opening of regular files only: opening a pipe or a device instead could block forever."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def resolved(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path without symbolic links; one that cannot be followed stays as it is."""
    # `Path.resolve` raises RuntimeError for links that form cycles.
    return Path(os.path.realpath(path))


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading bytes, unbuffered; OSError for anything else."""
    # Without O_NONBLOCK, opening a pipe blocks until there is a writer.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, f"it is a {_kind(mode)}, expected a regular file", os.fspath(path))
        return os.fdopen(handle, "rb", buffering=0)
    except BaseException:
        os.close(handle)
        raise


def require_regular(path: str | os.PathLike[str]) -> None:
    """Raise OSError unless a path leads to a regular file, for functions that open it by themselves."""
    open_regular(path).close()


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a regular file; OSError for anything else."""
    with open_regular(path) as file:
        return file.read()


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISFIFO, "pipe"), (stat.S_ISSOCK, "socket"), (stat.S_ISCHR, "device"), (stat.S_ISBLK, "device"))
    return next((name for test, name in kinds if test(mode)), "special file")
