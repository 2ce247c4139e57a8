"""Folders that only this user can change, as their content is executed or trusted otherwise."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from mirlo.runtime.system import effective_user

MAX_LINKS = 40
"""Most symbolic links on the way to a folder, as in Linux."""


def unsafe_folder(folder: Path) -> str | None:
    """Return why other users may put files in a folder and how to fix it; None if they cannot."""
    problem = None
    try:
        with contextlib.suppress(FileNotFoundError):  # it is created when it is needed
            problem = unsafe_mode(folder)
        if problem is not None:
            return f"{problem}: 'chmod 700' it if it is yours, or name another folder"
        problem = _unsafe_way(folder)
    except OSError as error:
        return f"{folder}: {error.strerror or error}"
    return problem and f"{problem}: name another folder"


def _unsafe_way(folder: Path) -> str | None:
    """Return the folder or link on the path to a folder that another user may replace, or None.

    Folders that a group may write to are accepted, as in many systems each user is a group.
    """
    user = effective_user()
    if user is None:
        return None
    trusted = {user, 0, os.lstat("/").st_uid}  # the last one is the administrator's number inside of a container
    owners = trusted
    for path, status in _steps(folder):
        if status.st_uid not in owners:
            return f"{path}, through which {folder} is reached, belongs to user {status.st_uid}, not to user {user}"
        is_open = stat.S_ISDIR(status.st_mode) and bool(status.st_mode & stat.S_IWOTH)
        if is_open and not status.st_mode & stat.S_ISVTX:
            return f"others can replace what is in {path}, through which {folder} is reached"
        if stat.S_ISDIR(status.st_mode):
            owners = {user, 0} if is_open else trusted
    return None


def _steps(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield each folder and link that the system reads on the path to a folder, up to the first that is missing."""
    path, left, links = Path("/"), [*reversed(Path(os.path.abspath(folder)).parts[1:])], 0
    while left:
        path = Path(os.path.normpath(path / left.pop()))
        try:
            status = path.lstat()
        except FileNotFoundError:
            return
        yield path, status
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            target = path.readlink()
            left += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            path = Path("/") if target.is_absolute() else path.parent


def unsafe_mode(path: Path) -> str | None:
    """Return the problem of the owner or the mode of a file or folder whose content is trusted."""
    user = effective_user()
    if user is None:
        return None  # on Windows, user folders inherit private permissions
    status = path.stat() if path.is_dir() else path.lstat()
    if status.st_uid not in (user, 0):
        return f"{path} belongs to user {status.st_uid}, not to user {user}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{path} can be written by others (mode {stat.S_IMODE(status.st_mode):o})"
    if not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
        return f"{path} is neither a file nor a folder"
    return None


def make_private(folder: Path) -> None:
    """Create a folder and its missing parents for this user alone, whatever the umask is."""
    missing = [folder]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for each in reversed(missing):
        try:
            each.mkdir(mode=0o700)
        except FileExistsError:
            continue
        each.chmod(0o700)
