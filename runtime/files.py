"""Reading and writing of regular files.

Opening a pipe or a device could block forever. All files that Mirlo writes are written here: whole or not at all, where
a link leads to. A character device, such as the null device, is written to; nothing else is replaced.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast


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
            raise _irregular(path, mode)
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


def require_writable(path: str | os.PathLike[str]) -> Path:
    """Return the path that is written for a path; OSError if there is anything but a regular file.

    For functions that open it by themselves.
    """
    target = resolved(path)
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return target
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(mode):
        raise _irregular(path, mode)
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
    return target


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], is_private: bool = False) -> Iterator[BinaryIO]:
    """Yield a file for writing that replaces a regular file, or creates it, once everything is written.

    A character device is written to; OSError if there is anything else. A link stays, and the file that it leads to is
    replaced. A new file that is private can be read by its owner alone.
    """
    if _is_character_device(path):
        import shutil  # here: processes that only run models need neither
        import tempfile

        with tempfile.TemporaryFile() as file:
            yield cast("BinaryIO", file)  # on Windows it wraps one
            file.seek(0)
            with open(path, "r+b", buffering=0) as opened:
                shutil.copyfileobj(file, opened)
        return
    target = require_writable(path)
    temporary = target.with_name(f".mirlo-{os.urandom(8).hex()}")
    try:
        with open(temporary, "xb", opener=_open_private if is_private else None) as file:
            yield file
        with contextlib.suppress(FileNotFoundError):
            os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.filename == os.fspath(temporary):
            error.filename = os.fspath(path)
        raise


def write_regular(path: str | os.PathLike[str], content: bytes | memoryview | str, is_private: bool = False) -> None:
    """Write a regular file, text as UTF-8; OSError if there is anything else."""
    with replacing(path, is_private) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _is_character_device(path: str | os.PathLike[str]) -> bool:
    try:
        return stat.S_ISCHR(os.stat(path).st_mode)
    except OSError:
        return False


def _irregular(path: str | os.PathLike[str], mode: int) -> OSError:
    return OSError(errno.EINVAL, f"it is a {_kind(mode)}, expected a regular file", os.fspath(path))


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISFIFO, "pipe"), (stat.S_ISSOCK, "socket"), (stat.S_ISCHR, "device"), (stat.S_ISBLK, "device"))
    return next((name for test, name in kinds if test(mode)), "special file")
