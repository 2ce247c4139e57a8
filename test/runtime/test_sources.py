"""Digests of the compiler's sources: whatever file of it changes, code that was cached before is not used."""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from commands import ROOT, python

from mirlo.runtime import cache as cache_module
from mirlo.runtime import sources
from mirlo.runtime.cache import OBJECTS, Cache, CacheEntry, default_folder
from mirlo.runtime.sources import (
    CODE_FOLDERS,
    MODEL_FOLDERS,
    code_version,
    compiler_digest,
    digest_of_sources,
    digest_of_unchanged,
    model_version,
)

EDITS: dict[str, Callable[[Path], object]] = {
    "change": lambda path: path.write_bytes(path.read_bytes() + b" "),
    "remove": Path.unlink,
    "rename": lambda path: path.rename(path.with_name(f"other_{path.name}")),
    "move": lambda path: path.rename(path.parent.parent / path.name),
    "add": lambda path: path.with_name("added.tbl").write_text("1"),
    "add a folder": lambda path: _write(path.parent / "added" / "rules.json"),
}


def _write(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("1")


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Compute the digests from a copy of the package."""
    for folder in MODEL_FOLDERS:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    compiler_digest.cache_clear()
    yield tmp_path
    monkeypatch.undo()
    compiler_digest.cache_clear()


@pytest.mark.sample(0)
def test_any_change_of_any_file_is_another_key(copy: Path) -> None:
    """The key of kernels covers each folder that the code generator imports, that of models two more."""
    rng = random.Random(0)
    keys = {(code_version(), model_version([]))}
    for folder in MODEL_FOLDERS:
        for edit in EDITS.values():
            files = sorted(path for path in (copy / folder).rglob("*") if path.is_file())
            compiler_digest.cache_clear()
            code = code_version()
            edit(rng.choice(files))
            compiler_digest.cache_clear()
            assert (code_version() != code) == (folder in CODE_FOLDERS)
            keys.add((code_version(), model_version([])))
    assert len({model for _, model in keys}) == len(keys) == 1 + len(MODEL_FOLDERS) * len(EDITS)


def test_what_python_generates_is_no_change(copy: Path) -> None:
    before = code_version()
    (copy / "passes" / "__pycache__").mkdir()
    (copy / "passes" / "__pycache__" / "rules.pyc").write_bytes(b"1")
    compiler_digest.cache_clear()
    assert code_version() == before


def test_a_link_to_nothing_is_no_error(tmp_path: Path) -> None:
    """Editors lock files with such links."""
    (tmp_path / "a.py").write_text("1")
    before = digest_of_sources([tmp_path])
    (tmp_path / ".#a.py").symlink_to("user@machine:1")
    assert digest_of_sources([tmp_path]) != before


posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no times of changes")
root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")


class Sources:
    """Two files of a package, and the digests that the cache has of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.read: list[str] = []
        (folder / "parts").mkdir(parents=True)
        self.first, self.second = folder / "first.py", folder / "parts" / "second.py"
        self.first.write_text("x = 1")
        self.second.write_text("y = 2")

    def digest(self) -> str:
        """Return the digest once the last change is old enough, and record the files that are read for it."""
        time.sleep(2 * sources._LEAST_AGE / 1e9)
        self.read.clear()
        return digest_of_sources([self.folder])

    def entries(self) -> list[CacheEntry]:
        return Cache(default_folder()).entries()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    """Return sources whose digest is in an empty cache; a change is old after 50 ms, some ticks of Linux's clock."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sources, "_LEAST_AGE", 50_000_000)
    package, content = Sources(tmp_path / "package"), sources._content

    def recorded(path: str) -> bytes:
        package.read.append(Path(path).name)
        return content(path)

    monkeypatch.setattr(sources, "_content", recorded)
    package.digest()
    assert package.read == ["first.py", "second.py"]
    return package


@posix
def test_sources_without_a_change_are_not_read(package: Sources) -> None:
    before = package.digest()
    assert not package.read and before == sources._digest_of_contents([str(package.folder)])


@posix
def test_an_edit_that_restores_size_and_time_is_seen(package: Sources) -> None:
    before, status = package.digest(), package.second.stat()
    package.second.write_text("y = 3")
    os.utime(package.second, ns=(status.st_atime_ns, status.st_mtime_ns))
    changed = package.second.stat()
    assert (changed.st_size, changed.st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    assert package.digest() != before and package.read


@posix
def test_a_file_put_in_the_place_of_another_is_seen(package: Sources, tmp_path: Path) -> None:
    before, status = package.digest(), package.second.stat()
    other = tmp_path / "other.py"
    other.write_text("y = 3")
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    package.digest()
    other.rename(package.second)
    assert digest_of_sources([package.folder]) != before


@posix
def test_an_edit_by_way_of_a_link_is_seen(package: Sources, tmp_path: Path) -> None:
    target = tmp_path / "target.py"
    target.write_text("z = 1")
    (package.folder / "link.py").symlink_to(target)
    before = package.digest()
    target.write_text("z = 2")
    assert package.digest() != before


@posix
def test_a_touched_file_is_read_once_and_keeps_the_digest(package: Sources) -> None:
    before = package.digest()
    package.first.touch()
    assert package.digest() == before and package.read
    assert package.digest() == before and not package.read


@posix
def test_new_and_removed_files_are_seen(package: Sources) -> None:
    before = package.digest()
    (package.folder / "third.py").write_text("")
    added = package.digest()
    package.first.unlink()
    assert len({before, added, package.digest()}) == 3
    (package.folder / "third.py").unlink()
    package.first.write_text("x = 1")
    assert package.digest() == before


@posix
def test_a_change_that_another_may_follow_at_the_same_time_is_not_stored(
    package: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_LEAST_AGE", int(3600e9))
    before = {entry.key for entry in package.entries()}
    package.first.write_text("x = 4")
    for text in ("x = 5", "x = 6"):
        package.first.write_text(text)
        package.read.clear()
        assert digest_of_sources([package.folder]) == sources._digest_of_contents([str(package.folder)])
        assert package.read and {entry.key for entry in package.entries()} == before


@posix
def test_a_change_while_the_files_are_read_is_not_stored(package: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    content, before = sources._content, {entry.key for entry in package.entries()}

    def changing(path: str) -> bytes:
        result = content(path)
        if path == str(package.first):
            package.first.write_text("x = 8")
        return result

    package.first.write_text("x = 7")
    monkeypatch.setattr(sources, "_content", changing)
    package.digest()
    assert {entry.key for entry in package.entries()} == before
    monkeypatch.setattr(sources, "_content", content)
    assert package.digest() == sources._digest_of_contents([str(package.folder)])


@posix
def test_a_damaged_digest_is_computed_again(package: Sources) -> None:
    before = package.digest()
    (entry,) = package.entries()
    entry.path.write_bytes(b"0" * entry.bytes)
    assert package.digest() == before and package.read
    assert package.digest() == before and not package.read


@posix
@root
def test_a_digest_of_another_user_is_not_used(package: Sources) -> None:
    before = package.digest()
    (entry,) = package.entries()
    entry.path.unlink()
    Cache(default_folder()).put(OBJECTS, entry.key, b"0" * 64)
    (entry,) = package.entries()
    os.chown(entry.path, 4242, 4242)
    assert package.digest() == before and package.read


@posix
def test_a_cache_that_cannot_be_written_is_no_error(package: Sources, tmp_path: Path) -> None:
    before = package.digest()
    shutil.rmtree(tmp_path / "cache" / "mirlo")
    (tmp_path / "cache" / "mirlo").write_text("a file where the folder should be")
    for _ in range(2):
        assert package.digest() == before and package.read == ["first.py", "second.py"]


@posix
def test_two_processes_at_once_return_the_same(package: Sources, tmp_path: Path) -> None:
    before = package.digest()
    for entry in package.entries():
        entry.path.unlink()
    script = (
        "import os, sys; from pathlib import Path; from mirlo.runtime import sources; sources._LEAST_AGE = 0\n"
        "os.environ['XDG_CACHE_HOME'] = sys.argv[2]\n"
        "print({sources.digest_of_sources([Path(sys.argv[1])]) for _ in range(200)})"
    )
    with ThreadPoolExecutor() as threads:
        results = list(threads.map(lambda _: python("-c", script, package.folder, tmp_path / "cache"), range(2)))
    assert [result.stdout for result in results] == [f"{{{before!r}}}\n"] * 2
    assert len(package.entries()) == 1


def test_systems_without_times_of_changes_read_all_files(package: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    for _ in range(2):
        package.read.clear()
        digest_of_sources([package.folder])
        assert package.read


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a large file; a change is old after 50 ms, and 4 bytes are large."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sources, "_LEAST_AGE", 50_000_000)
    monkeypatch.setattr(cache_module, "LARGE_FILE", 4)
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"weights")
    time.sleep(0.1)
    return path


@posix
def test_weights_are_read_once_after_each_change(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest_of_file, read = cache_module.digest_of_file, list[Path]()

    def counted(path: Path) -> str:
        read.append(path)
        return digest_of_file(path)

    monkeypatch.setattr(cache_module, "digest_of_file", counted)
    before = [digest_of_unchanged(weights) for _ in range(3)]
    assert before == [digest_of_file(weights)] * 3 and len(read) == 1
    status = weights.stat()
    weights.write_bytes(b"Weights")
    os.utime(weights, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert digest_of_unchanged(weights) == digest_of_file(weights) != before[0]  # and it is too new to be kept
    assert digest_of_unchanged(weights) != before[0] and len(read) == 3
    weights.write_bytes(b"")  # a small file is read each time
    assert digest_of_unchanged(weights) == digest_of_file(weights)


def test_weights_that_are_gone_are_an_error(weights: Path) -> None:
    digest_of_unchanged(weights)
    weights.unlink()
    with pytest.raises(FileNotFoundError):
        digest_of_unchanged(weights)
