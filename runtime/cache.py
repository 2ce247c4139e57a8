"""The cache on disk: files by content, bounded in size, safe with several processes at once.

An entry is one file, `FOLDER/objects/3f/KEY-DIGEST`: what it was made from is its key, what is in it its digest, so
that damage is seen when it is read. Entries appear by a rename, whole or not at all; two processes that make the same
one at the same time do twice the work and no harm. The time of the last use is the file's; the entries that were not
used for the longest time go when the cache grows beyond its limit.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from pathlib import Path

from mirlo.runtime.errors import MirloError
from mirlo.runtime.files import open_regular, read_regular

DEFAULT_LIMIT = 4 << 30
OBJECTS, MODELS, MANIFESTS = "objects", "models", "manifests"
KINDS = (OBJECTS, MODELS, MANIFESTS)
"""Compiled kernels; compiled models with their weights; what a model's file refers to."""
LARGEST_SHARE = 0.5
"""Part of the limit that one entry may take: a larger one would push everything else out."""
_KEEP = 0.8
"""Part of the limit that is left after entries were removed: not every new one should remove another."""
_BLOCK = 4 << 20
_THREADS = 4
_LOOK_SECONDS = 600.0
"""How long nobody needs to look how large the cache is, as long as nobody stores much."""
_STALE_SECONDS = 3600.0
"""Age of a temporary file whose process must have died."""
_TEMPORARY = ".new-"
_untrimmed: dict[Path, int] = {}
"""By folder, the bytes that this process stored since it looked at the size: compilations have a `Cache` each."""


@dataclass(frozen=True)
class Entry:
    """A file of the cache."""

    kind: str
    key: str
    digest: str
    path: Path
    bytes: int
    used: float
    """Seconds since the epoch."""

    def is_whole(self) -> bool:
        """Whether the content is what was stored."""
        try:
            return digest_of_file(self.path) == self.digest
        except OSError:
            return False


@dataclass
class Counts:
    """What became of the questions that one process asked."""

    hits: int = 0
    misses: int = 0
    stored: int = 0
    damaged: int = 0


@dataclass
class Cache:
    """A cache in a folder, which is made when the first entry is stored."""

    where: InitVar[str | os.PathLike[str]]
    limit: int | None = None
    """Bytes; None for the one that the folder was told (`set_limit`), or the default."""
    counts: Counts = field(default_factory=Counts)
    problem: str | None = field(default=None, init=False)
    """Why the last entry could not be stored, where it could not."""
    folder: Path = field(init=False)

    def __post_init__(self, where: str | os.PathLike[str]) -> None:
        self.folder = Path(where)

    @cached_property
    def _is_safe(self) -> bool:
        """Whether nobody else can put files in the folder; what they could is code that this process would run."""
        self.problem = _unsafe(self.folder)
        return self.problem is None

    def get(self, kind: str, key: str) -> bytes | None:
        """The content of an entry. A damaged one is removed and counts as missing."""
        for entry in self._candidates(kind, key):
            with contextlib.suppress(OSError):
                content = read_regular(entry.path)
                if digest_of(content) == entry.digest:
                    self._used(entry)
                    return content
                self._damaged(entry)
        self.counts.misses += 1
        return None

    def find(self, kind: str, key: str) -> Path | None:
        """The file of an entry whose content was checked."""
        for entry in self._candidates(kind, key):
            if entry.is_whole():
                self._used(entry)
                return entry.path
            self._damaged(entry)
        self.counts.misses += 1
        return None

    def put(self, kind: str, key: str, content: bytes) -> None:
        """Store bytes."""
        digest = digest_of(content)
        self._store(kind, key, len(content), lambda path: _write(path, content), lambda path: digest)

    def put_file(self, kind: str, key: str, size: int, write: Callable[[Path], object]) -> None:
        """Store what `write` writes to the path that it is given, about `size` bytes."""
        self._store(kind, key, size, write, digest_of_file)

    def max_bytes(self) -> int:
        """The limit that holds."""
        if self.limit is not None:
            return self.limit
        try:
            return int(read_regular(self.folder / "limit"))
        except (OSError, ValueError):
            return DEFAULT_LIMIT

    def set_limit(self, limit: int) -> None:
        """Tell the folder its limit, for every process that uses it, and keep to it."""
        _make_private(self.folder)
        temporary = self.folder / f"{_TEMPORARY}{secrets.token_hex(8)}"
        temporary.write_text(f"{limit}\n", encoding="ascii")
        os.replace(temporary, self.folder / "limit")
        self.trim()

    def entries(self) -> list[Entry]:
        """All entries, the longest unused first."""
        return sorted((e for kind in KINDS for e in self._scan(self.folder / kind, kind)), key=lambda e: e.used)

    def trim(self) -> list[Entry]:
        """Remove what was not used for the longest time, until the cache is well within its limit."""
        _untrimmed[self.folder] = 0
        with contextlib.suppress(OSError):
            self._looked.touch()
        entries, limit = self.entries(), self.max_bytes()
        total = sum(entry.bytes for entry in entries)
        removed: list[Entry] = []
        if total > limit:
            for entry in entries:
                if total <= limit * _KEEP:
                    break
                _remove(entry.path)
                total -= entry.bytes
                removed.append(entry)
        self._remove_stale()
        return removed

    def clear(self) -> list[Entry]:
        """Remove every entry."""
        entries = self.entries()
        for entry in entries:
            _remove(entry.path)
        return entries

    def verify(self) -> list[Entry]:
        """Read every entry; those that are damaged are removed, and returned."""
        damaged = [entry for entry in self.entries() if not entry.is_whole()]
        for entry in damaged:
            _remove(entry.path)
        return damaged

    def _store(
        self, kind: str, key: str, size: int, write: Callable[[Path], object], digest: Callable[[Path], str]
    ) -> None:
        if not self._is_safe or size > self.max_bytes() * LARGEST_SHARE:
            return
        folder = self.folder / kind / key[:2]
        temporary = folder / f"{_TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
        try:
            _make_private(folder)
            write(temporary)
            _make_private_file(temporary)
            os.replace(temporary, folder / f"{key}-{digest(temporary)}")
        except (OSError, MirloError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self.problem = f"{self.folder}: {reason}"
            _remove(temporary)
            return
        except BaseException:
            _remove(temporary)
            raise
        self.counts.stored += 1
        _untrimmed[self.folder] = _untrimmed.get(self.folder, 0) + size
        # Looking through the folder costs more than compiling a kernel: it is done now and then.
        if _untrimmed[self.folder] > self.max_bytes() * (1 - _KEEP) / 2 or self._is_forgotten():
            self.trim()

    @property
    def _looked(self) -> Path:
        """A file whose time is that of the last look at the size, by any process."""
        return self.folder / "looked"

    def _is_forgotten(self) -> bool:
        try:
            return time.time() - self._looked.stat().st_mtime > _LOOK_SECONDS
        except OSError:
            return True

    def _candidates(self, kind: str, key: str) -> list[Entry]:
        if not self._is_safe:
            return []
        folder = self.folder / kind / key[:2]
        found = _scan_folder(folder, kind, f"{key}-")
        for path in (folder.parent, folder, *(entry.path for entry in found)) if found else ():
            problem = _unsafe_mode(path)
            if problem is not None:
                self.problem = f"{problem}; what it holds is not used"
                return []
        return found

    def _scan(self, folder: Path, kind: str) -> Iterator[Entry]:
        try:
            groups = [Path(found.path) for found in os.scandir(folder) if found.is_dir(follow_symlinks=False)]
        except OSError:
            return
        for group in groups:
            yield from _scan_folder(group, kind, "")

    def _used(self, entry: Entry) -> None:
        self.counts.hits += 1
        with contextlib.suppress(OSError):
            os.utime(entry.path)

    def _damaged(self, entry: Entry) -> None:
        self.counts.damaged += 1
        _remove(entry.path)

    def _remove_stale(self) -> None:
        oldest = time.time() - _STALE_SECONDS
        for path in self.folder.glob(f"*/*/{_TEMPORARY}*"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < oldest:
                    path.unlink()


def _unsafe(folder: Path) -> str | None:
    """Return why others may put files in a folder, or what to do about it; None where they cannot."""
    try:
        problem = _unsafe_mode(folder)
    except FileNotFoundError:
        return None  # it is made when it is needed
    except OSError as error:
        return f"{folder}: {error.strerror or error}"
    return problem and f"{problem}: 'chmod 700' it if it is yours, or name another folder"


def _unsafe_mode(path: Path) -> str | None:
    """Return what is wrong with the owner or the mode of a file or folder whose content is trusted."""
    if not hasattr(os, "geteuid"):
        return None  # on Windows folders of users are theirs by inheritance
    found = path.stat() if path.is_dir() else path.lstat()
    if found.st_uid not in (os.geteuid(), 0):
        return f"{path} belongs to user {found.st_uid}, not to user {os.geteuid()}"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{path} can be written by others (mode {stat.S_IMODE(found.st_mode):o})"
    if not (stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)):
        return f"{path} is neither a file nor a folder"
    return None


def _make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone, whatever the umask is."""
    missing = [folder]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for each in reversed(missing):
        try:
            each.mkdir(mode=0o700)
        except FileExistsError:
            continue
        each.chmod(0o700)


def default_folder() -> Path:
    """Where this user's caches lie on this system."""
    try:
        return _user_folder() / "mirlo" / "compiled"
    except RuntimeError:
        # No HOME, and a user that the system does not know, as in containers.
        user = os.getuid() if hasattr(os, "getuid") else "user"
        return Path(tempfile.gettempdir()) / f"mirlo-{user}" / "compiled"


def _user_folder() -> Path:
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base


def digest_of(content: bytes | memoryview) -> str:
    """The digest of bytes: of the digests of their blocks, which are computed side by side."""
    view = memoryview(content)
    return _digest_of_blocks(lambda at: view[at : at + _BLOCK], len(view))


def digest_of_file(path: str | os.PathLike[str]) -> str:
    """The digest of a file's content, which is read by blocks: a mapping would count as memory of this process."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if hasattr(os, "pread"):
            return _digest_of_blocks(lambda at: os.pread(file.fileno(), _BLOCK, at), size)
        return digest_of(file.read())


def _digest_of_blocks(block: Callable[[int], bytes | memoryview], size: int) -> str:
    starts = range(0, size, _BLOCK)

    def digest(at: int) -> bytes:
        return hashlib.sha256(block(at)).digest()

    if len(starts) < 4:
        leaves = list(map(digest, starts))
    else:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_THREADS) as pool:
            leaves = list(pool.map(digest, starts))
    return hashlib.sha256(b"".join(leaves) + str(size).encode()).hexdigest()[:40]


def _scan_folder(folder: Path, kind: str, prefix: str) -> list[Entry]:
    found = []
    try:
        for item in os.scandir(folder):
            key, dash, digest = item.name.rpartition("-")
            if item.name.startswith((".", _TEMPORARY)) or not dash or not item.name.startswith(prefix):
                continue
            with contextlib.suppress(OSError):
                status = item.stat()
                if not stat.S_ISREG(status.st_mode):
                    continue
                found.append(Entry(kind, key, digest, Path(item.path), status.st_size, status.st_mtime))
    except OSError:
        pass
    return found


def _write(path: Path, content: bytes) -> None:
    with open(path, "xb") as file:
        file.write(content)


def _make_private_file(path: Path) -> None:
    """Let nobody else write to a file, whatever the umask is."""
    path.chmod(0o600)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
