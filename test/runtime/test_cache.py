"""The cache on disk: damage, concurrent writers, its limit."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import python
from vanishing import interrupted

from mirlo.runtime import cache as cache_module
from mirlo.runtime.cache import MODELS, OBJECTS, Cache, CacheEntry, default_folder, digest_of, digest_of_file
from mirlo.runtime.private_folders import unsafe_folder

KEY = "ab" * 20

WRITER = """
import sys
from pathlib import Path
from mirlo.runtime.cache import Cache, OBJECTS
cache = Cache(Path(sys.argv[1]))
for round in range(60):
    for number in range(5):
        cache.put(OBJECTS, f"{number:040x}", bytes([number]) * 100_000)
        found = cache.get(OBJECTS, f"{number:040x}")
        assert found is None or found == bytes([number]) * 100_000
    if round % 20 == int(sys.argv[2]):
        cache.trim()
assert cache.problem is None, cache.problem
assert not cache.counts.damaged
"""


def test_what_was_put_is_found(tmp_path) -> None:
    cache = Cache(tmp_path)
    assert cache.get(OBJECTS, KEY) is None
    cache.put(OBJECTS, KEY, b"code")
    assert Cache(tmp_path).get(OBJECTS, KEY) == b"code"
    assert cache.get(MODELS, KEY) is None
    assert cache.get(OBJECTS, "ac" + KEY[2:]) is None
    assert (cache.counts.hits, cache.counts.misses, cache.counts.stored) == (0, 3, 1)


@pytest.mark.parametrize("damage", [b"", b"cod", b"codf", b"code and more"])
def test_damaged_entries_are_missing_and_removed(tmp_path, damage: bytes) -> None:
    cache = Cache(tmp_path)
    cache.put(OBJECTS, KEY, b"code")
    (entry,) = cache.entries()
    entry.path.write_bytes(damage)
    assert cache.get(OBJECTS, KEY) is None
    assert cache.counts.damaged == 1 and not cache.entries()
    cache.put(OBJECTS, KEY, b"code")
    assert cache.get(OBJECTS, KEY) == b"code"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the list of files that are read as a whole; files of 4 bytes are large."""
    found: list[Path] = []

    def counted(path: Path) -> str:
        found.append(Path(path))
        return digest_of_file(path)

    monkeypatch.setattr(cache_module, "digest_of_file", counted)
    monkeypatch.setattr(cache_module, "LARGE_FILE", 4)
    return found


def put_file(cache: Cache, content: bytes) -> Path:
    cache.put_file(MODELS, KEY, len(content), lambda path: path.write_bytes(content))
    (entry,) = (entry for entry in cache.entries() if entry.kind == MODELS)
    return entry.path


def test_large_files_that_are_as_written_are_not_read(tmp_path: Path, reads: list[Path]) -> None:
    path = put_file(Cache(tmp_path), b"weights")
    written = path.stat().st_mtime_ns
    os.utime(path, ns=(0, written))
    reads.clear()
    for _ in range(2):
        cache = Cache(tmp_path)
        assert cache.find(MODELS, KEY) == path and not reads
        assert (cache.counts.hits, cache.counts.misses) == (1, 0)
    assert path.stat().st_mtime_ns == written
    (entry,) = (entry for entry in cache.entries() if entry.kind == MODELS)
    assert entry.used > 0  # the time of the last use


@pytest.mark.parametrize("content", [b"", b"abc"])
def test_small_files_are_read(tmp_path: Path, reads: list[Path], content: bytes) -> None:
    path = put_file(Cache(tmp_path), content)
    reads.clear()
    assert Cache(tmp_path).find(MODELS, KEY) == path and reads == [path]


def _overwritten(path: Path) -> None:
    path.write_bytes(b"Weights")


def _truncated(path: Path) -> None:
    os.truncate(path, 5)


def _replaced(path: Path) -> None:
    """Put another file of the same size and times in its place."""
    status, other = path.stat(), path.with_name("other")
    other.write_bytes(b"Weights")
    other.chmod(0o600)
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    os.replace(other, path)


@pytest.mark.parametrize("change", [_overwritten, _truncated, _replaced])
def test_large_files_that_differ_are_read(tmp_path: Path, reads: list[Path], change: Callable[[Path], None]) -> None:
    path = put_file(Cache(tmp_path), b"weights")
    os.utime(path, (1, 1))
    assert Cache(tmp_path).find(MODELS, KEY) == path  # other times: read once more, and recorded
    reads.clear()
    change(path)
    cache = Cache(tmp_path)
    assert cache.find(MODELS, KEY) is None
    assert cache.counts.damaged == 1 and reads in ([path], []) and not path.exists()


def test_a_copied_folder_is_read_once(tmp_path: Path, reads: list[Path]) -> None:
    path = put_file(Cache(tmp_path / "a"), b"weights")
    shutil.copytree(tmp_path / "a", tmp_path / "b", copy_function=shutil.copy2)
    copied = tmp_path / "b" / path.relative_to(tmp_path / "a")
    reads.clear()
    for _ in range(2):
        assert Cache(tmp_path / "b").find(MODELS, KEY) == copied
    assert reads == [copied]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes")
def test_records_that_others_can_write_are_not_used(tmp_path: Path, reads: list[Path]) -> None:
    path = put_file(Cache(tmp_path), b"weights")
    (record,) = (entry for entry in Cache(tmp_path).entries() if entry.kind != MODELS)
    record.path.chmod(0o666)
    reads.clear()
    cache = Cache(tmp_path)
    assert cache.find(MODELS, KEY) == path and reads == [path]
    assert cache.problem is not None and "what it holds is not used" in cache.problem


def test_verify_reads_large_files(tmp_path: Path, reads: list[Path]) -> None:
    path = put_file(Cache(tmp_path), b"weights")
    status = path.stat()
    path.write_bytes(b"Weights")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert [entry.path for entry in Cache(tmp_path).verify()] == [path]


def test_verify_removes_the_damaged_ones_only(tmp_path) -> None:
    cache = Cache(tmp_path)
    for number in range(3):
        cache.put(OBJECTS, f"{number:040x}", b"content %d" % number)
    bad = cache.entries()[1]
    bad.path.write_bytes(b"something else")
    assert [entry.key for entry in cache.verify()] == [bad.key]
    assert len(cache.entries()) == 2


def test_files(tmp_path) -> None:
    cache = Cache(tmp_path)
    cache.put_file(MODELS, KEY, 5, lambda path: path.write_bytes(b"model"))
    found = cache.find(MODELS, KEY)
    assert found is not None and found.read_bytes() == b"model"
    found.write_bytes(b"mooel")
    assert cache.find(MODELS, KEY) is None and not found.exists()


def test_a_failed_write_leaves_nothing(tmp_path) -> None:
    def write(path: Path) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Cache(tmp_path).put_file(MODELS, KEY, 5, write)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_folder_that_cannot_be_written_is_told(tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = Cache(tmp_path / "file")
    cache.put(OBJECTS, KEY, b"code")
    assert cache.problem is not None and "file" in cache.problem
    assert cache.get(OBJECTS, KEY) is None


def test_what_was_not_used_for_longest_goes(tmp_path) -> None:
    cache = Cache(tmp_path, limit=10_000)
    for number in range(9):
        cache.put(OBJECTS, f"{number:040x}", bytes([number]) * 1000)
    for entry in cache.entries():
        os.utime(entry.path, (int(entry.key, 16), int(entry.key, 16)))
    assert cache.get(OBJECTS, f"{0:040x}") is not None
    for number in (9, 10):
        cache.put(OBJECTS, f"{number:040x}", bytes([number]) * 1000)
    cache.trim()
    assert [int(entry.key, 16) for entry in cache.entries()][-3:] == [0, 9, 10]
    assert sum(entry.bytes for entry in cache.entries()) <= 10_000


def test_the_size_stays_bounded_without_being_asked(tmp_path) -> None:
    cache = Cache(tmp_path, limit=10_000)
    for number in range(200):
        cache.put(OBJECTS, f"{number:040x}", bytes(1000))
    assert sum(entry.bytes for entry in cache.entries()) <= 11_000


def test_the_folder_is_looked_through_now_and_then_only(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each compilation has a cache object of its own; together they still keep to the limit."""
    looks = 0
    entries = Cache.entries

    def counted(cache: Cache) -> list[CacheEntry]:
        nonlocal looks
        looks += 1
        return entries(cache)

    monkeypatch.setattr(Cache, "entries", counted)
    for number in range(200):
        Cache(tmp_path, limit=100_000).put(OBJECTS, f"{number:040x}", bytes(1000))
    assert 15 <= looks <= 20
    assert sum(entry.bytes for entry in entries(Cache(tmp_path))) <= 110_000
    os.utime(tmp_path / "looked", (0, 0))
    Cache(tmp_path, limit=100_000).put(OBJECTS, KEY, b"")
    assert (tmp_path / "looked").stat().st_mtime > 0


def test_an_entry_that_is_too_large_is_not_kept(tmp_path) -> None:
    cache = Cache(tmp_path, limit=1000)
    cache.put(OBJECTS, KEY, bytes(600))
    assert not cache.entries()


def test_the_limit_is_remembered(tmp_path) -> None:
    Cache(tmp_path).set_limit(12345)
    assert Cache(tmp_path).max_bytes() == 12345


def test_a_limit_that_cannot_be_stored_leaves_nothing(tmp_path) -> None:
    (tmp_path / "limit").mkdir()
    with pytest.raises(OSError, match="directory"):
        Cache(tmp_path).set_limit(12345)
    assert [path.name for path in tmp_path.iterdir()] == ["limit"]


@pytest.mark.sample(0)
def test_several_processes_at_once(tmp_path) -> None:
    import subprocess

    commands = [[sys.executable, "-c", WRITER, str(tmp_path), str(n)] for n in range(3)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    running = [subprocess.Popen(c, env=environment, stderr=subprocess.PIPE, text=True) for c in commands]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert not Cache(tmp_path).verify()


@pytest.mark.parametrize("size", [0, 1, 4 << 20, (4 << 20) + 1, 40 << 20])
def test_digest_of_a_file_is_that_of_its_bytes(tmp_path, size: int) -> None:
    content = os.urandom(1024) * (size // 1024 + 1)
    (tmp_path / "f").write_bytes(content[:size])
    assert digest_of_file(tmp_path / "f") == digest_of(content[:size])
    assert digest_of(content[:size]) != digest_of(content[:size] + b"\0")


def test_the_module_imports_nothing_large() -> None:
    code = "import sys, mirlo.runtime.cache; assert not {'numpy', 'llvmlite', 'onnx'} & set(sys.modules)"
    assert python("-c", code).returncode == 0


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners and modes of POSIX")


@posix
def test_folders_and_entries_are_private_whatever_the_umask(tmp_path, open_umask) -> None:
    folder = tmp_path / "a" / "mirlo"
    cache = Cache(folder)
    cache.put(OBJECTS, KEY, b"code")
    cache.set_limit(1 << 20)
    for path in (folder.parent, folder, *folder.rglob("*")):
        assert not path.stat().st_mode & 0o022 or path.name in ("looked", "limit"), path
        assert not path.is_dir() or path.stat().st_mode & 0o777 == 0o700, path
    assert Cache(folder).get(OBJECTS, KEY) == b"code" and cache.problem is None


@posix
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o707, 0o1777])
@pytest.mark.parametrize("where", ["", OBJECTS, f"{OBJECTS}/ab"])
def test_folders_that_others_can_write_to_are_not_used(tmp_path, mode: int, where: str) -> None:
    Cache(tmp_path).put(OBJECTS, KEY, b"code")
    (tmp_path / where).chmod(mode)
    cache = Cache(tmp_path)
    assert cache.get(OBJECTS, KEY) is None and cache.find(OBJECTS, KEY) is None
    assert cache.problem is not None and f"can be written by others (mode {mode:o})" in cache.problem
    (tmp_path / where).chmod(0o700)
    assert Cache(tmp_path).get(OBJECTS, KEY) == b"code"


@posix
@pytest.mark.parametrize("mode", [0o666, 0o602, 0o620])
def test_entries_that_others_can_write_to_are_not_used(tmp_path, mode: int) -> None:
    cache = Cache(tmp_path)
    cache.put(OBJECTS, KEY, b"code")
    (entry,) = cache.entries()
    entry.path.chmod(mode)
    assert cache.get(OBJECTS, KEY) is None and "can be written by others" in (cache.problem or "")


@posix
def test_what_belongs_to_others_is_not_used(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path)
    cache.put(OBJECTS, KEY, b"code")
    (entry,) = cache.entries()
    status = os.stat_result
    real = Path.lstat

    def foreign(self: Path) -> os.stat_result:
        found = real(self)
        return status((*found[:4], 4242, *found[5:10])) if self == entry.path else found

    monkeypatch.setattr(Path, "lstat", foreign)
    assert cache.get(OBJECTS, KEY) is None and "belongs to user 4242" in (cache.problem or "")


@posix
def test_a_folder_of_another_user_is_told_once_and_nothing_is_stored(tmp_path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    Cache(tmp_path).put(OBJECTS, KEY, b"code")
    os.chown(tmp_path, 4242, 4242)
    cache = Cache(tmp_path)
    assert cache.get(OBJECTS, KEY) is None and "belongs to user 4242" in (cache.problem or "")
    cache.put(OBJECTS, "cd" * 20, b"other")
    assert not list(tmp_path.rglob("cdcd*"))


def _take_entry(folder: Path) -> None:
    for path in folder.rglob(f"{KEY}-*"):
        path.unlink()


def _take_group(folder: Path) -> None:
    for path in folder.glob("*/ab"):
        shutil.rmtree(path)


def _take_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _replace_group(folder: Path) -> None:
    """Leave a file where there was a folder."""
    for path in folder.glob("*/ab"):
        shutil.rmtree(path)
        path.write_text("")


ACTIONS: dict[str, Callable[[Cache], object]] = {
    "get": lambda cache: cache.get(OBJECTS, KEY),
    "find": lambda cache: cache.find(MODELS, KEY),
    "has": lambda cache: cache.has(OBJECTS, KEY),
    "put": lambda cache: cache.put(OBJECTS, "ab" + "cd" * 19, b"other"),
    "entries": Cache.entries,
    "trim": Cache.trim,
    "clear": Cache.clear,
    "verify": Cache.verify,
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("take", [_take_entry, _take_group, _take_folder, _replace_group])
@pytest.mark.parametrize("name", ACTIONS)
def test_what_vanishes_is_missing(tmp_path, name: str, take: Callable[[Path], None]) -> None:
    """Another process may evict entries, and a user may remove the folder, before any call to the system."""
    folder = tmp_path / "cache"
    cache = Cache(folder)

    def prepare() -> None:
        nonlocal cache
        shutil.rmtree(folder, ignore_errors=True)
        Cache(folder).put(OBJECTS, KEY, b"code")
        Cache(folder).put(MODELS, KEY, b"model")
        cache = Cache(folder, limit=6 if name == "trim" else None)

    prepare()
    runs = 0
    for before, found in interrupted(lambda: ACTIONS[name](cache), lambda: take(folder)):
        if name in ("get", "find"):
            assert (cache.counts.hits, cache.counts.misses) == ((1, 0) if found else (0, 1)), before
            assert found in (b"code", None) or found == folder / MODELS / "ab" / f"{KEY}-{digest_of(b'model')}", before
        if name != "put":
            assert not cache.counts.damaged and cache.problem is None, before
        runs += 1
        prepare()
    assert runs > 5


@pytest.fixture
def shared(tmp_path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for temporary files of all users; this user has no other folder."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    for variable in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(variable, str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    return folder


def _is_used(folder: Path) -> bool:
    Cache(folder).put(OBJECTS, KEY, b"code")
    return Cache(folder).get(OBJECTS, KEY) == b"code"


@posix
@pytest.mark.skipif(sys.platform == "darwin", reason="its folder of caches is not named by a variable")
def test_a_folder_for_temporary_files(shared: Path) -> None:
    """The fall-back is not used if another user made its parent, or linked it to some place."""
    folder = default_folder()
    assert shared in folder.parents and folder.parent.parent == shared
    assert _is_used(folder) and unsafe_folder(folder) is None
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(folder.parent, 4242, 4242)
    assert f"{folder.parent}, through which" in (unsafe_folder(folder) or "") and not _is_used(folder)
    shutil.rmtree(folder.parent)
    (shared.parent / "own").mkdir()
    folder.parent.symlink_to(shared.parent / "own")
    assert _is_used(folder)
    os.chown(folder.parent, 4242, 4242, follow_symlinks=False)
    assert "belongs to user 4242" in (unsafe_folder(folder) or "") and not _is_used(folder)


@posix
def test_ways_that_others_can_change(tmp_path) -> None:
    way = tmp_path / "a"
    folder = way / "b" / "mirlo"
    assert _is_used(folder)
    for mode, is_used in ((0o777, False), (0o1777, True), (0o775, True), (0o755, True)):
        way.chmod(mode)
        assert _is_used(folder) == is_used, oct(mode)
    way.chmod(0o777)
    for link, target in (("near", "a/b"), ("far", str(way / "b")), ("chain", "near"), ("up", "a/../a/b/../b")):
        (tmp_path / link).symlink_to(target)
        assert f"others can replace what is in {way}" in (unsafe_folder(tmp_path / link / "mirlo") or ""), link
    (tmp_path / "round").symlink_to("round")
    assert "symbolic links" in (unsafe_folder(tmp_path / "round" / "mirlo") or "")


@posix
def test_symbolic_links_and_pipes_are_no_entries(tmp_path) -> None:
    cache = Cache(tmp_path)
    cache.put(OBJECTS, KEY, b"code")
    (entry,) = cache.entries()
    entry.path.unlink()
    os.mkfifo(entry.path, 0o600)
    assert Cache(tmp_path).get(OBJECTS, KEY) is None
    entry.path.unlink()
    (tmp_path / "elsewhere").write_bytes(b"code")
    entry.path.symlink_to(tmp_path / "elsewhere")
    assert Cache(tmp_path).get(OBJECTS, KEY) is None
