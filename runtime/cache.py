"""The cache on disk: files by content, bounded in size, safe with several concurrent processes.

An entry is one file, `FOLDER/objects/3f/KEY-DIGEST`: the key identifies its source, the digest its content, so that
reads detect damage. Entries appear by an atomic rename; two processes that make the same entry concurrently only
duplicate work. The access time of the file is the time of its last use; the least recently used entries are evicted
when the cache exceeds its limit.

Large entries, whose weights are mapped, are read as a whole when their file is not the one that was written: its
inode, size and modification time are kept with the digest. The code and the header of a compiled model have a checksum
of their own, which each load compares.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import InitVar, field
from functools import cached_property
from pathlib import Path

from mirlo.runtime.errors import MirloError
from mirlo.runtime.files import open_regular, read_regular, write_regular
from mirlo.runtime.private_folders import make_private, unsafe_folder, unsafe_mode
from mirlo.runtime.records import dataclass
from mirlo.runtime.system import positional_read, user_cache

DEFAULT_LIMIT = 4 << 30
OBJECTS, MODELS, MANIFESTS = "objects", "models", "manifests"
KINDS = (OBJECTS, MODELS, MANIFESTS)
"""Compiled kernels; compiled models with their weights; what a model's file refers to."""
LARGEST_SHARE = 0.5
"""Fraction of the limit that one entry may take: a larger one would evict everything else."""
_KEPT_FRACTION = 0.8
"""Fraction of the limit that is left after an eviction, so that not every new entry evicts another."""
_BLOCK = 4 << 20
_PART = 1 << 18
"""Bytes of a file that a thread has in memory while it computes a digest: what it frees, the C library keeps."""
_THREADS = 4
_CHECK_SECONDS = 600.0
"""Interval in seconds between checks of the size while little is stored."""
LARGE_FILE = 16 << 20
"""Bytes from which a file is not read as a whole to check that it is the same."""
_STALE_SECONDS = 3600.0
"""Age in seconds of a temporary file whose process must have died."""
_TEMPORARY = ".new-"
_untrimmed: dict[Path, int] = {}
"""By folder, the bytes stored by this process since the last size check; shared, as compilations have a `Cache`
each."""


@dataclass(frozen=True)
class CacheEntry:
    """A file of the cache."""

    kind: str
    key: str
    digest: str
    path: Path
    bytes: int
    used: float
    """The time of the last use, in seconds since the epoch."""

    def is_whole(self) -> bool:
        """Return whether the content matches its digest."""
        try:
            return digest_of_file(self.path) == self.digest
        except OSError:
            return False


@dataclass
class Counts:
    """The lookups of one process, by result."""

    hits: int = 0
    misses: int = 0
    stored: int = 0
    damaged: int = 0


@dataclass
class Cache:
    """A cache in a folder, which is created when the first entry is stored."""

    where: InitVar[str | os.PathLike[str]]
    limit: int | None = None
    """Bytes; None for the limit stored in the folder (`set_limit`), or the default."""
    counts: Counts = field(default_factory=Counts)
    problem: str | None = field(default=None, init=False)
    """Why an entry could not be stored, of several the last one; None if all were."""
    folder: Path = field(init=False)

    def __post_init__(self, where: str | os.PathLike[str]) -> None:
        self.folder = Path(where)

    @cached_property
    def _is_safe(self) -> bool:
        """Return whether only this user can put files in the folder; this process runs code from them."""
        self.problem = unsafe_folder(self.folder)
        return self.problem is None

    def has(self, kind: str, key: str) -> bool:
        """Return whether there is an entry, whatever its content: this is no lookup."""
        return bool(self._candidates(kind, key))

    def get(self, kind: str, key: str) -> bytes | None:
        """Return the content of an entry. A damaged one is removed and counts as missing."""
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
        """Return the file of an entry after checking its content; a large file that is the one written is not read."""
        for entry in self._candidates(kind, key):
            with contextlib.suppress(OSError):
                record = self._record(entry.path, entry.digest)
                if record is not None or digest_of_file(entry.path) == entry.digest:
                    self._used(entry)
                    if record is None:
                        self._note_written(entry.path, entry.digest)
                    else:
                        _touch(record.path)
                    return entry.path
                self._damaged(entry)
        self.counts.misses += 1
        return None

    def put(self, kind: str, key: str, content: bytes) -> None:
        """Store bytes."""
        digest = digest_of(content)
        self._store(kind, key, len(content), lambda path: _write(path, content), lambda path: digest)

    def put_file(self, kind: str, key: str, size: int, write: Callable[[Path], object]) -> None:
        """Store the file that `write` writes to the path it is called with, of about `size` bytes."""
        path = self._store(kind, key, size, write, digest_of_file)
        if path is not None:
            self._note_written(path, path.name.rpartition("-")[2])

    def max_bytes(self) -> int:
        """Return the limit in effect."""
        if self.limit is not None:
            return self.limit
        try:
            return int(read_regular(self.folder / "limit"))
        except (OSError, ValueError):
            return DEFAULT_LIMIT

    def largest(self) -> int:
        """Return the most bytes of an entry: larger ones are not stored."""
        return int(self.max_bytes() * LARGEST_SHARE)

    def set_limit(self, limit: int) -> None:
        """Store the limit in the folder for all processes that use it, and evict entries above it."""
        make_private(self.folder)
        write_regular(self.folder / "limit", f"{limit}\n")
        self.trim()

    def entries(self) -> list[CacheEntry]:
        """Return all entries, least recently used first."""
        return sorted((e for kind in KINDS for e in self._scan(self.folder / kind, kind)), key=lambda e: e.used)

    def trim(self) -> list[CacheEntry]:
        """Evict the least recently used entries until the cache is well within its limit."""
        _untrimmed[self.folder] = 0
        with contextlib.suppress(OSError):
            self._looked.touch()
        entries, limit = self.entries(), self.max_bytes()
        total = sum(entry.bytes for entry in entries)
        removed: list[CacheEntry] = []
        if total > limit:
            for entry in entries:
                if total <= limit * _KEPT_FRACTION:
                    break
                _remove(entry.path)
                total -= entry.bytes
                removed.append(entry)
        self._remove_stale()
        return removed

    def clear(self) -> list[CacheEntry]:
        """Remove every entry."""
        entries = self.entries()
        for entry in entries:
            _remove(entry.path)
        return entries

    def verify(self) -> list[CacheEntry]:
        """Read every entry; remove and return the damaged ones."""
        damaged = [entry for entry in self.entries() if not entry.is_whole()]
        for entry in damaged:
            _remove(entry.path)
        return damaged

    def _store(
        self, kind: str, key: str, size: int, write: Callable[[Path], object], digest: Callable[[Path], str]
    ) -> Path | None:
        """Store an entry and return its file, or None if it cannot be stored."""
        if not self._is_safe or size > self.largest():
            return None
        folder = self.folder / kind / key[:2]
        temporary = folder / f"{_TEMPORARY}{os.getpid()}-{os.urandom(8).hex()}"
        try:
            make_private(folder)
            write(temporary)
            _make_private_file(temporary)
            path = folder / f"{key}-{digest(temporary)}"
            _touch(temporary)
            os.replace(temporary, path)
        except (OSError, MirloError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self.problem = f"{self.folder}: {reason}"
            _remove(temporary)
            return None
        except BaseException:
            _remove(temporary)
            raise
        self.counts.stored += 1
        _untrimmed[self.folder] = _untrimmed.get(self.folder, 0) + size
        # Measuring the folder costs more than compiling a kernel, so it is done periodically.
        if _untrimmed[self.folder] > self.max_bytes() * (1 - _KEPT_FRACTION) / 2 or self._is_forgotten():
            self.trim()
        return path

    @property
    def _looked(self) -> Path:
        """Return the file whose modification time is the time of the last size check by any process."""
        return self.folder / "looked"

    def _is_forgotten(self) -> bool:
        try:
            return time.time() - self._looked.stat().st_mtime > _CHECK_SECONDS
        except OSError:
            return True

    def _candidates(self, kind: str, key: str) -> list[CacheEntry]:
        if not self._is_safe:
            return []
        folder = self.folder / kind / key[:2]
        result = []
        for entry in _scan_folder(folder, kind, f"{key}-"):
            # Other processes evict entries at any time, and users remove folders.
            with contextlib.suppress(OSError):
                problem = next(filter(None, map(unsafe_mode, (folder.parent, folder, entry.path))), None)
                if problem is not None:
                    self.problem = f"{problem}; what it holds is not used"
                    return []
                result.append(entry)
        return result

    def _scan(self, folder: Path, kind: str) -> Iterator[CacheEntry]:
        for group in _list_folder(folder):
            if group.is_dir(follow_symlinks=False):
                yield from _scan_folder(Path(group.path), kind, "")

    def _record(self, path: Path, digest: str) -> CacheEntry | None:
        """Return the record that a large file, by its inode, size and time, is the one that has this digest."""
        key = _identity(path)
        records = [] if key is None else self._candidates(MANIFESTS, key)
        return next((entry for entry in records if entry.digest == digest_of(digest.encode())), None)

    def _note_written(self, path: Path, digest: str) -> None:
        """Record that a file, if it is large, has this digest."""
        with contextlib.suppress(OSError):
            key = _identity(path)
            if key is not None:
                Cache(self.folder, self.limit).put(MANIFESTS, key, digest.encode())

    def _used(self, entry: CacheEntry) -> None:
        self.counts.hits += 1
        _touch(entry.path)

    def _damaged(self, entry: CacheEntry) -> None:
        self.counts.damaged += 1
        _remove(entry.path)

    def _remove_stale(self) -> None:
        oldest = time.time() - _STALE_SECONDS
        groups = (group for kind in KINDS for group in _list_folder(self.folder / kind))
        for item in (item for group in groups for item in _list_folder(Path(group.path))):
            with contextlib.suppress(OSError):
                if item.name.startswith(_TEMPORARY) and item.stat().st_mtime < oldest:
                    os.unlink(item.path)


def default_folder() -> Path:
    """Return this user's default cache folder on this system."""
    return user_cache() / "compiled"


def digest_of(content: bytes | memoryview) -> str:
    """Return the digest of bytes: a digest of the digests of their blocks, which are computed in parallel."""
    view = memoryview(content)
    return _digest_of_blocks(lambda start, stop: view[start:stop], len(view), _BLOCK)


def digest_of_file(path: str | os.PathLike[str]) -> str:
    """Return the digest of a file, read by parts: a mapping would count as memory of this process."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        pread = positional_read()
        if pread is not None:
            return _digest_of_blocks(lambda start, stop: pread(file.fileno(), stop - start, start), size, _PART)
        return digest_of(file.read())


def _digest_of_blocks(read: Callable[[int, int], bytes | memoryview], size: int, part: int) -> str:
    """Return the digest of data that `read` returns in ranges of at most `part` bytes."""
    starts = range(0, size, _BLOCK)

    def digest(at: int) -> bytes:
        result, end = hashlib.sha256(), min(at + _BLOCK, size)
        for start in range(at, end, part):
            result.update(read(start, min(start + part, end)))
        return result.digest()

    leaves = list(map(digest, starts)) if len(starts) < 4 else _in_threads(digest, starts)
    return hashlib.sha256(b"".join(leaves) + str(size).encode()).hexdigest()[:40]


def _in_threads(function: Callable[[int], bytes], values: Sequence[int]) -> list[bytes]:
    """Return the results of a function on several threads; `concurrent.futures` takes 5 ms to import."""
    results, failures = [b""] * len(values), list[BaseException]()

    def run(first: int) -> None:
        try:
            for i in range(first, len(values), _THREADS):
                results[i] = function(values[i])
        except BaseException as error:  # raised by the caller's thread
            failures.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(1, _THREADS)]
    for thread in threads:
        thread.start()
    run(0)
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


def _list_folder(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder; none if it does not exist."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _scan_folder(folder: Path, kind: str, prefix: str) -> list[CacheEntry]:
    result = []
    for item in _list_folder(folder):
        if item.name.startswith((".", _TEMPORARY)) or not item.name.startswith(prefix):
            continue
        key, dash, digest = item.name.rpartition("-")
        if not dash:
            continue
        with contextlib.suppress(OSError):
            status = item.stat()
            if stat.S_ISREG(status.st_mode):
                result.append(CacheEntry(kind, key, digest, Path(item.path), status.st_size, status.st_atime))
    return result


def _touch(path: Path) -> None:
    """Set the time of the last use of an entry, and no other."""
    with contextlib.suppress(OSError):
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))


def _identity(path: Path) -> str | None:
    """Return a key of the file at a path, as it was written; None for a small one."""
    status = path.stat()
    if status.st_size < LARGE_FILE:
        return None
    parts = (os.path.realpath(path), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    return hashlib.sha256(f"file {parts}".encode()).hexdigest()[:40]


def _write(path: Path, content: bytes) -> None:
    with open(path, "xb") as file:
        file.write(content)


def _make_private_file(path: Path) -> None:
    """Remove write permission of other users from a file, whatever the umask is."""
    path.chmod(0o600)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
