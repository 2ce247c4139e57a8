"""What `runtime/system.py` and `runtime/processes.py` do on each system; others than this one are fakes."""

from __future__ import annotations

import ctypes
import multiprocessing.context  # noqa: F401 (looks at the system when it is imported)
import os
import signal
import sys
import types
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mirlo.runtime import processes, system
from mirlo.runtime.arena import ArenaPool
from mirlo.runtime.container import ALIGNMENT
from mirlo.runtime.huge_pages import PAGE

HOME = Path("/home/of/a/user")


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that this is Windows: functions that it lacks raise when called."""
    monkeypatch.setattr(sys, "platform", "win32")
    for name in (
        "fork",
        "register_at_fork",
        "setsid",
        "killpg",
        "sched_getaffinity",
        "getuid",
        "geteuid",
        "pread",
        "waitpid",
    ):
        monkeypatch.delattr(os, name, raising=False)
    for name in ("SIGKILL", "SIGSTOP", "SIGCONT"):
        monkeypatch.delattr(signal, name, raising=False)
    monkeypatch.setitem(sys.modules, "resource", None)


@pytest.mark.parametrize(
    ("name", "variables", "expected"),
    [
        ("linux", {}, HOME / ".cache/mirlo"),
        ("linux", {"XDG_CACHE_HOME": "/elsewhere"}, Path("/elsewhere/mirlo")),
        ("darwin", {}, HOME / "Library/Caches/mirlo"),
        ("win32", {}, HOME / "AppData/Local/mirlo"),
        ("win32", {"LOCALAPPDATA": "/local"}, Path("/local/mirlo")),
    ],
)
def test_folders_of_users(
    name: str, variables: dict[str, str], expected: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(Path, "home", lambda: HOME)
    monkeypatch.setattr(sys, "platform", name)
    asked: list[Any] = []
    monkeypatch.setattr(os, "access", lambda path, mode: asked.append(path) or True)
    assert system.user_cache() == expected
    assert asked, "whether it can be made"


def test_homes_that_are_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    assert system.user_cache().name == f"mirlo-{os.getuid()}"
    (tmp_path / "caches" / "mirlo").mkdir(parents=True)
    assert system.user_cache() == tmp_path / "caches" / "mirlo", "what is there can be read"


@pytest.mark.usefixtures("windows")
def test_nothing_that_windows_lacks_is_used() -> None:
    assert not processes.can_fork() and not system.has_posix_threads() and not system.can_remove_open_files()
    processes.after_fork(lambda: None, before=lambda: None, in_parent=lambda: None)
    for call in (processes.end_group, processes.stop_group, processes.continue_group, processes.limit_memory):
        call(12345)
    processes.lead_group()
    assert system.peak_memory() == 0 and system.cores() == [] and system.effective_user() is None
    assert system.positional_read() is None and processes.unused_addresses() is None and system.own_memory() == 0
    system.release_code()
    assert system.available_cores() == (os.cpu_count() or 1)
    assert processes.process_context().get_start_method() == "spawn"
    with pytest.raises(OSError, match="no forks"):
        processes.run_forked(lambda: b"")


@pytest.mark.usefixtures("windows")
def test_a_user_of_windows_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError("no home")

    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    monkeypatch.setattr(Path, "home", home)
    assert system.user_cache().name == "mirlo-user"


def test_libraries_of_windows_are_freed(windows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[int] = []
    monkeypatch.setitem(sys.modules, "_ctypes", types.SimpleNamespace(FreeLibrary=freed.append))
    system.close_library(7)
    assert freed == [7]


def test_macos_reports_memory_in_bytes_and_no_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    usage: Any = types.SimpleNamespace(ru_maxrss=4096)
    fake = types.SimpleNamespace(getrusage=lambda _: usage, RUSAGE_SELF=0)
    monkeypatch.setitem(sys.modules, "resource", fake)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert system.peak_memory() == 4096 and system.cores() == []
    monkeypatch.setattr(sys, "platform", "linux")
    assert system.peak_memory() == 4096 * 1024


def test_maps_of_files(tmp_path: Path) -> None:
    for content in (b"", b"content"):
        path = tmp_path / f"{len(content)}"
        path.write_bytes(content)
        with path.open("rb") as file:
            assert bytes(system.map_file(file, len(content))) == content


def test_memory_of_a_kernel_without_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    class Memory(bytearray):
        def __init__(self, file: int, nbytes: int, **_: int) -> None:
            super().__init__(nbytes)

        def madvise(self, *_: int) -> None:
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(system.mmap, "mmap", Memory)
    assert len(system.map_memory(8)) == 8


def test_large_arenas_are_given_back() -> None:
    """An arena of several megabytes is a mapping of its own, which is gone with it; a small one is aligned, too."""
    nbytes = (4 << 20) + 640
    arena = ArenaPool(nbytes, keep=0).take()
    assert arena.memory is not None and arena.memory.nbytes == nbytes
    arena.memory[:] = 1
    assert not system.has_huge_pages() or arena.address % PAGE == 0
    assert ArenaPool(640).take().address % ALIGNMENT == 0
    kept = weakref.ref(_mapping_of(arena.memory)) if system.has_huge_pages() else lambda: None
    del arena
    assert kept() is None


def _mapping_of(array: Any) -> Any:
    """Return what holds the memory that an array is a part of."""
    while getattr(array, "base", None) is not None:
        array = array.base
    return getattr(array, "obj", array)


@pytest.mark.skipif(sys.platform != "linux", reason="mappings are listed on Linux")
def test_code_of_registered_folders_is_released(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Pages of a library in a folder, which are read again from its file, and those of no other folder."""
    released: list[tuple[int, int]] = []

    def madvise(start: int, nbytes: int, _: int) -> None:
        released.append((start, nbytes))

    monkeypatch.setattr(system, "_code_folders", set())
    monkeypatch.setattr(ctypes, "CDLL", lambda _: types.SimpleNamespace(madvise=madvise))
    system.release_code()
    system.register_code(tmp_path)
    system.release_code()
    assert released == []
    system.register_code(Path(next(_mapped_code())).parent)
    system.release_code()
    assert released and all(nbytes > 0 for _, nbytes in released)


def _mapped_code() -> Iterator[str]:
    """Yield the files whose code is mapped in this process."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        parts = line.split(None, 5)
        if len(parts) == 6 and parts[1] == "r-xp" and parts[5].startswith("/"):
            yield parts[5]


def test_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int, **__: int) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(system.mmap, "mmap", refuse)
    with pytest.raises(MemoryError, match="8 bytes: Cannot allocate memory"):
        system.map_memory(8)
