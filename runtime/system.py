"""Differences between operating systems: cores, memory, files, libraries, folders of users.

All other modules call this one and `processes.py`; `test/architecture` finds code that calls the system by itself.
Where a system lacks something, the function documents the behaviour instead.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import BinaryIO

OBJECT_FORMAT = {"win32": "coff", "darwin": "macho"}.get(sys.platform, "elf")
"""Format of the object files that LLVM writes for this system."""

LIBRARY_SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
"""The suffix of shared libraries."""

_MAP_FIXED = 16
"""Linux: map at an address, in place of what is there."""
_ARCH_PRCTL = 158
_GET_PERMITTED, _REQUEST = 0x1022, 0x1023
_TILE_DATA = 18
"""The number of the state of AMX's registers."""


@cache
def permits_tiles() -> bool:
    """Request from the system that all threads of this process may use AMX's registers; return whether they may.

    Other instructions of AMX end a process. Once permitted, threads cannot have signal stacks of less than 12 KiB; the
    system refuses if one has. Before Linux 5.16, in some sandboxes and on other systems they are not available.
    """
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return False
    import ctypes

    call, mask = ctypes.CDLL(None).syscall, ctypes.c_ulong(0)
    call.restype = ctypes.c_long
    long = ctypes.c_long
    if call(long(_ARCH_PRCTL), long(_REQUEST), long(_TILE_DATA)) != 0:
        return False
    is_known = call(long(_ARCH_PRCTL), long(_GET_PERMITTED), ctypes.byref(mask)) == 0
    return is_known and bool(mask.value >> _TILE_DATA & 1)


def peak_memory() -> int:
    """Return the most memory that this process has had, in bytes; 0 if the system does not report it."""
    if sys.platform == "win32":
        return 0
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def own_memory() -> int:
    """Return the bytes of this process's memory that are not pages of files; 0 if the system does not report them."""
    if sys.platform != "linux":
        return 0
    with open("/proc/self/statm", encoding="ascii") as file:
        _, resident, of_files, *_ = map(int, file.read().split())
    return (resident - of_files) * mmap.PAGESIZE


def has_posix_threads() -> bool:
    """Return whether the functions of POSIX threads are in the process."""
    return sys.platform != "win32"


def cores() -> list[int]:
    """Return the cores on which this process may run, in order; empty if the system does not list them."""
    if sys.platform == "linux":
        return sorted(os.sched_getaffinity(0))
    return []


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(cores()) or os.cpu_count() or 1


@contextlib.contextmanager
def moving_among_cores() -> Iterator[Callable[[int], None] | None]:
    """Yield a function that moves this thread to a core, by its index in `cores`; None if there is one core only."""
    usual = cores()
    if sys.platform != "linux" or len(usual) < 2:
        yield None
        return
    try:
        yield lambda number: os.sched_setaffinity(0, {usual[number]})
    finally:
        os.sched_setaffinity(0, usual)


class FileMapping(mmap.mmap):
    """The bytes of a file in memory.

    Their pages are read when they are used: a file that is overwritten meanwhile has other bytes, and of one that was
    cut off, reading the bytes that it lacks ends the process.
    """

    def __init__(self, descriptor: int, *_: object, **__: object) -> None:
        """Remember the state of the file, which `mmap.mmap.__new__` has mapped."""
        self._descriptor = os.dup(descriptor)
        weakref.finalize(self, os.close, self._descriptor)
        self._state = self._current_state()

    def is_unchanged(self) -> bool:
        """Return whether the file is as it was when it was mapped; one that was replaced or removed is."""
        return self._current_state() == self._state

    def _current_state(self) -> tuple[int, int]:
        status = os.fstat(self._descriptor)
        return status.st_size, status.st_mtime_ns


def file_state(status: os.stat_result) -> tuple[int, ...] | None:
    """Return numbers that differ after each change of a file, the time of the change in ns as the last one.

    Processes can set all times of a file but that one. None on Windows, which has no such time.
    """
    if sys.platform == "win32":
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def scalable_vector_bits() -> int:
    """Return the length of a process's vectors of SVE; 0 where there are none."""
    if sys.platform != "linux" or os.uname().machine != "aarch64":
        return 0
    import ctypes

    get_length, length_mask = 51, 0xFFFF  # PR_SVE_GET_VL, PR_SVE_VL_LEN_MASK
    length: int = ctypes.CDLL(None).prctl(get_length, 0, 0, 0, 0)
    return 8 * (length & length_mask) if length >= 0 else 0


def map_file(file: BinaryIO, size: int) -> FileMapping | bytes:
    """Return the bytes of an open file, mapped for reading; an empty file cannot be mapped."""
    return FileMapping(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""


def release_pages(mapping: FileMapping, start: int, stop: int) -> None:
    """Release the whole pages of a mapped range, which are read again when needed, if the system supports it."""
    first, last = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, stop // mmap.PAGESIZE * mmap.PAGESIZE
    if sys.platform == "linux" and last > first:
        with contextlib.suppress(OSError):
            mapping.madvise(mmap.MADV_DONTNEED, first, last - first)


_RELEASE_INTERVAL = 1.0
"""Seconds between two releases of the code of libraries by `release_code_seldom`. Each takes 2 ms, and as long again or
longer when the next model is compiled, whose code is mapped page by page."""
_last_release = float("-inf")
_code_folders: set[str] = set()


def register_code(folder: str | os.PathLike[str]) -> None:
    """Have `release_code` release the code of the libraries in a folder, which runs while models are compiled only."""
    _code_folders.add(os.path.join(os.path.realpath(folder), ""))


def release_code() -> None:
    """Release the pages of code that models do not need when they run: those of the compiler's libraries.

    They are mapped again from their files when they are executed, without what a debugger has written to them. Nothing
    happens on systems whose mappings cannot be listed.
    """
    if sys.platform != "linux" or not _code_folders:
        return
    import ctypes

    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    folders = tuple(_code_folders)
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="replace") as mappings:
        for line in mappings:
            parts = line.rstrip("\n").split(None, 5)  # addresses, permissions, offset, device, inode, path
            if len(parts) == 6 and parts[1] == "r-xp" and parts[5].startswith(folders):
                start, end = (int(address, 16) for address in parts[0].split("-"))
                madvise(start, end - start, mmap.MADV_DONTNEED)


def release_code_seldom() -> None:
    """Call `release_code` unless it was called a moment ago, as processes that load many small models would."""
    global _last_release
    now = time.monotonic()
    if now - _last_release >= _RELEASE_INTERVAL:
        _last_release = now
        release_code()


def protect_memory(address: int, nbytes: int, is_executable: bool = False) -> None:
    """Make whole pages read-only, executable if they are code; raise OSError if the system does not allow that."""
    if sys.platform == "win32":
        raise OSError("pages are protected by mprotect, which Windows lacks")
    import ctypes

    mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if nbytes and mprotect(address, nbytes, mmap.PROT_READ | (mmap.PROT_EXEC if is_executable else 0)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


_PROCESSOR_LINES = (
    "vendor_id", "cpu family", "model", "model name", "stepping", "flags",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features",
)  # fmt: skip
"""The lines of `/proc/cpuinfo` that stay the same while a core runs."""


def processor_description() -> str:
    """Return the lines that describe the kinds of cores and their features; empty on systems without such a list."""
    if sys.platform != "linux":
        return ""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = {line for line in file if line.partition(":")[0].strip() in _PROCESSOR_LINES}
    except OSError:
        return ""
    if not any(line.startswith(("flags", "Features")) for line in lines):
        return ""
    return "".join([*sorted(lines), os.uname().machine])


def map_repeated(content: memoryview, before: int, repeats: int, after: int) -> tuple[int, int] | None:
    """Return the address and the bytes of new memory in which a content of whole pages is several times.

    It takes the room of one, and of what is written to. Zeros are before and after it: whole pages before. Return None
    where the system maps no memory twice, or has none.
    """
    step, total = content.nbytes, before + repeats * content.nbytes + after
    if sys.platform != "linux" or step % mmap.PAGESIZE or before % mmap.PAGESIZE:
        return None
    import ctypes

    library = ctypes.CDLL(None)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    allowed, failed = mmap.PROT_READ | mmap.PROT_WRITE, ctypes.c_void_p(-1).value
    try:
        file = os.memfd_create("repeated")
    except OSError:
        return None
    try:
        with contextlib.suppress(OSError):
            if os.write(file, content) != step:
                return None
            address = library.mmap(None, total, allowed, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
            if address == failed:
                return None
            for i in range(repeats):
                place = address + before + i * step
                if library.mmap(place, step, allowed, mmap.MAP_PRIVATE | _MAP_FIXED, file, 0) == failed:
                    unmap_memory(address, total)
                    return None
            return address, total
        return None
    finally:
        os.close(file)


def unmap_memory(address: int, nbytes: int) -> None:
    """Return memory of `map_repeated` to the system."""
    import ctypes

    munmap = ctypes.CDLL(None).munmap
    munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    munmap(address, nbytes)


def map_memory(nbytes: int, in_huge_pages: bool = True) -> mmap.mmap:
    """Return new memory, in huge pages if that is wanted and the system has them; raise MemoryError if it has none."""
    try:
        if sys.platform != "linux":
            return mmap.mmap(-1, nbytes)
        # What is shared, Python's default, has small pages.
        memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{nbytes} bytes: {error.strerror or error}") from None
    if in_huge_pages:
        use_huge_pages(memory, 0, nbytes)
    return memory


MOST_FREED = 1 << 29
"""Bytes of freed memory that a process keeps for its next allocations, where it asks to keep any."""


@cache
def keep_freed_memory() -> bool:
    """Have the C library keep freed memory, up to `MOST_FREED`, for later allocations; return whether it does.

    glibc gives what is free at the end of its heap back to the system when that is twice the largest block that it
    has freed, so that a loop which frees and allocates the same sizes gets new pages each time. A page takes as long as
    thousands of operations. Arrays above 32 MiB are mappings of their own, as before.
    """
    if sys.platform != "linux":
        return False
    import ctypes

    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:
        return False
    return all(set_option(option, value) == 1 for option, value in ((_TRIM, MOST_FREED), (_MAP, _MAPPED)))


_TRIM, _MAP, _MAPPED = -1, -3, 1 << 25
"""Options of glibc's `mallopt`: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, and the most that the latter may be."""


def use_huge_pages(memory: mmap.mmap, start: int, nbytes: int) -> None:
    """Request huge pages for a part of mapped memory, if the system has them."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # of a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE, start, nbytes)


@functools.cache
def has_huge_pages() -> bool:
    """Return whether the system gives huge pages to memory for which they are wanted."""
    try:
        with open("/sys/kernel/mm/transparent_hugepage/enabled", encoding="ascii") as file:
            return "[never]" not in file.read()
    except (OSError, ValueError):
        return False


def map_temporary(nbytes: int, folder: str | os.PathLike[str]) -> FileMapping:
    """Return memory in a file without a name, which the system may write there when memory is short.

    Raise OSError if the folder has no room.
    """
    import tempfile

    with tempfile.TemporaryFile(dir=folder) as file:
        if sys.platform == "linux":
            os.posix_fallocate(file.fileno(), 0, nbytes)  # a full disk would end the process later
        else:
            file.truncate(nbytes)
        return FileMapping(file.fileno(), nbytes)


class GuardedPages:
    """Whole pages with room for some bytes, between two pages that cannot be read or written."""

    _pages: mmap.mmap

    def __init__(self, nbytes: int) -> None:
        """Map pages for this many bytes; raise OSError where the system protects none."""
        if sys.platform == "win32":
            raise OSError("this system protects no pages")
        inner = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            self._pages = mmap.mmap(-1, inner + 2 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise MemoryError(f"{nbytes} bytes: {error.strerror or error}") from None
        for start in (0, inner + mmap.PAGESIZE):
            self._protect(start, mmap.PAGESIZE, 0)

    @property
    def content(self) -> memoryview:
        """Return the bytes between the two pages."""
        return memoryview(self._pages)[mmap.PAGESIZE : -mmap.PAGESIZE]

    def make_read_only(self) -> None:
        """Make the bytes read-only."""
        if sys.platform != "win32":
            self._protect(mmap.PAGESIZE, len(self._pages) - 2 * mmap.PAGESIZE, mmap.PROT_READ)

    def _protect(self, start: int, nbytes: int, rights: int) -> None:
        import ctypes

        address = ctypes.addressof(ctypes.c_char.from_buffer(self._pages)) + start
        if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), rights):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def positional_read() -> Callable[[int, int, int], bytes] | None:
    """Return a function of file, size and offset that threads may call at once; None where there is none."""
    if sys.platform != "win32":
        return os.pread
    return None


def can_remove_open_files() -> bool:
    """Return whether a file can be removed while it is open or loaded."""
    return sys.platform != "win32"


def close_library(handle: int) -> None:
    """Unload a library that `ctypes` loaded."""
    if sys.platform == "win32":
        from _ctypes import FreeLibrary

        FreeLibrary(handle)
    else:
        from _ctypes import dlclose

        dlclose(handle)


def user_cache() -> Path:
    """Return the folder for caches of this user; where there is none and none can be made, one for temporary files."""
    try:
        folder = _usual_cache()
        # In containers there may be no HOME and a user unknown to the system, or a home that is read-only.
        parent = next((each for each in (folder, *folder.parents) if each.exists()), None)
        if folder == parent or (parent is not None and os.access(parent, os.W_OK | os.X_OK)):
            return folder
    except (RuntimeError, OSError):
        pass
    import tempfile

    return Path(tempfile.gettempdir()) / f"mirlo-{_user()}"


def _usual_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "mirlo"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "mirlo"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mirlo"


def _user() -> str:
    if sys.platform != "win32":
        return str(os.getuid())
    return "user"


def effective_user() -> int | None:
    """Return the number of the user with whose rights this process runs; None without such numbers."""
    if sys.platform != "win32":
        return os.geteuid()
    return None
