"""Differences between operating systems: forks, signals, limits, cores, memory, sockets, libraries, folders of users.

All other modules call this one; `test/architecture` finds code that calls the system by itself. Where a system lacks
something, the function documents the behaviour instead.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import mmap
import os
import select
import struct
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

if TYPE_CHECKING:
    import socket
    from subprocess import Popen

OBJECT_FORMAT = {"win32": "coff", "darwin": "macho"}.get(sys.platform, "elf")
"""Format of the object files that LLVM writes for this system."""

LIBRARY_SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
"""The suffix of shared libraries."""


_ARCH_PRCTL = 158
_GET_PERMITTED, _REQUEST = 0x1022, 0x1023
_TILE_DATA = 18
"""The number of the state of AMX's registers."""


@cache
def permits_tiles() -> bool:
    """Ask the system that all threads of this process may use AMX's registers; return whether they may.

    Other instructions of AMX end a process. Once permitted, threads cannot have signal stacks of less than 12 KiB; the
    system refuses if one has. Before Linux 5.16, in some sandboxes and on other systems nobody may use them.
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


def can_fork() -> bool:
    """Return whether a process can be copied."""
    return sys.platform != "win32"


def after_fork(
    in_child: Callable[[], object],
    before: Callable[[], object] | None = None,
    in_parent: Callable[[], object] | None = None,
) -> None:
    """Register what each fork calls; without forks, nothing is called."""
    if sys.platform != "win32":
        callbacks = {"before": before, "after_in_parent": in_parent}
        os.register_at_fork(after_in_child=in_child, **{k: call for k, call in callbacks.items() if call is not None})


class ForkResult(NamedTuple):
    """The exit status of a fork."""

    content: bytes
    """What its function returned; what is there of it if the fork died."""
    code: int
    """The exit code; below 0, a signal's number."""


def run_forked(
    work: Callable[[], bytes], output: int | None = None, errors: int | None = None, cpu_seconds: int | None = None
) -> ForkResult:
    """Run a function in a fork of this process, which ends afterwards, whatever the function did.

    `output` and `errors` are files for its standard streams; after `cpu_seconds` of processor time the system ends it.
    """
    if sys.platform == "win32":
        raise OSError("this system has no forks")
    reading, writing = os.pipe()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # otherwise the fork would write this buffer again
    with warnings.catch_warnings():
        # Python warns of locks that other threads may hold.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            gc.freeze()  # what is garbage here may wait for threads that are not in the fork when it is freed
            os.close(reading)
            for descriptor, number in ((output, 1), (errors, 2)):
                if descriptor is not None:
                    os.dup2(descriptor, number)
            if errors is not None:
                import faulthandler

                faulthandler.disable()  # it may write elsewhere
            if cpu_seconds is not None:
                limit_processor(cpu_seconds)
            with open(writing, "wb") as pipe:
                pipe.write(work())
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(child, 0)
    return ForkResult(content, os.waitstatus_to_exitcode(status))


def is_single_threaded() -> bool:
    """Return whether no other thread may hold a lock that a fork would copy; False if unknown."""
    return _thread_count() == 1


def _thread_count() -> int:
    """Return the number of threads of this process; 0 if unknown."""
    try:
        return len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 0
    except OSError:
        return 0


def end_blas_threads() -> None:
    """End the threads of NumPy's OpenBLAS if there are no others, as it does itself before a fork.

    It starts new ones for its next large product.
    """
    numpy = sys.modules.get("numpy._core._multiarray_umath") or sys.modules.get("numpy.core._multiarray_umath")
    count = _thread_count()
    if numpy is None or count < 2 or threading.active_count() > 1:
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):  # another library of matrix products
        blas = ctypes.CDLL(numpy.__file__)
        if count == blas.scipy_openblas_get_num_threads64_():
            blas.blas_thread_shutdown_()


class ForkedProcess:
    """A fork of this process that serves requests, with the part of `subprocess.Popen`'s interface that is used."""

    pid: int
    stdin: BinaryIO
    stdout: BinaryIO
    returncode: int | None
    _lock: threading.Lock

    def __init__(self, serve: Callable[[], object]) -> None:
        """Start the fork: `serve` reads from its standard input, writes to its standard output, and ends it.

        The fork is in a session of its own and has no other files than the standard streams.
        """
        if sys.platform == "win32":
            raise OSError("this system has no forks")
        self.returncode = None
        self._lock = threading.Lock()
        input_, to_input = os.pipe()
        from_output, output = os.pipe()
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()  # otherwise the fork would write this buffer again
        try:
            self.pid = os.fork()
        except OSError:
            for descriptor in (input_, to_input, from_output, output):
                os.close(descriptor)
            raise
        if self.pid == 0:
            code = 1
            try:
                gc.freeze()
                _leave_parent(input_, output)
                serve()
                code = 0
            finally:
                os._exit(code)
        os.close(input_)
        os.close(output)
        self.stdin, self.stdout = os.fdopen(to_input, "wb"), os.fdopen(from_output, "rb")

    def poll(self) -> int | None:
        """Return the exit code, below 0 a signal's number; None while the fork runs."""
        with self._lock:
            if self.returncode is None and sys.platform != "win32":
                try:
                    pid, status = os.waitpid(self.pid, os.WNOHANG)
                except ChildProcessError:  # something else in this process waited for it
                    pid, status = self.pid, 0
                if pid == self.pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, at most this many seconds; return the exit code."""
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise TimeoutError(f"process {self.pid} runs after {timeout} seconds")
            time.sleep(0.001)
        return code

    def kill(self) -> None:
        """End the fork at once, if it runs."""
        if sys.platform != "win32":
            import signal

            with self._lock:
                if self.returncode is None:
                    os.kill(self.pid, signal.SIGKILL)


def _leave_parent(input_: int, output: int) -> None:
    """Drop the state that a fork inherits from its parent: terminal, files, handlers of signals."""
    if sys.platform != "win32":
        import signal

        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(input_, 0)
        os.dup2(output, 1)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2:
                with contextlib.suppress(OSError):
                    os.close(int(name))


def open_descriptors() -> int:
    """Return how many files this process has open; 0 where that cannot be told."""
    folder = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
    return len(os.listdir(folder)) if os.path.isdir(folder) else 0


@contextlib.contextmanager
def interrupt_after(seconds: float) -> Iterator[None]:
    """Raise KeyboardInterrupt in the main thread, after so many seconds, unless the block has ended."""
    import signal

    if sys.platform == "win32":
        import _thread

        timer = threading.Timer(seconds, _thread.interrupt_main)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
        return
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def process_context() -> Any:
    """Return multiprocessing's context with the cheapest processes: forks, where there are any."""
    import multiprocessing

    if not can_fork():
        return multiprocessing.get_context("spawn")
    _keep_garbage_in_forks()
    return multiprocessing.get_context("fork")


@cache
def _keep_garbage_in_forks() -> None:
    """Freeze garbage in forked processes of `multiprocessing`, as `run_forked` does, so that they do not free it."""
    from multiprocessing.util import register_after_fork

    register_after_fork(process_context, lambda _: gc.freeze())


def lead_group() -> None:
    """Make this process the first of a group, which `end_group` ends; without groups, nothing happens."""
    if sys.platform != "win32":
        os.setsid()


def end_group(leader: int) -> None:
    """End a process and those of its group; without groups, nothing happens."""
    if sys.platform != "win32":
        import signal

        _signal_group(leader, signal.SIGKILL)


def end_with_parent() -> None:
    """Request a signal that ends this process with its parent, even a stopped one; only on Linux."""
    if sys.platform == "linux":
        import ctypes
        import signal

        signal_of_death = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(signal_of_death, int(signal.SIGKILL), 0, 0, 0)


def stop_group(leader: int) -> None:
    """Stop a process and those of its group until they continue; without groups, nothing happens."""
    if sys.platform != "win32":
        import signal

        _signal_group(leader, signal.SIGSTOP)


def continue_group(leader: int) -> None:
    """Continue a process and those of its group."""
    if sys.platform != "win32":
        import signal

        _signal_group(leader, signal.SIGCONT)


def _signal_group(leader: int, number: int) -> None:
    if sys.platform != "win32":
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it has no group yet, or is at its end
            os.killpg(leader, number)


def start_connected(command: Sequence[str], variables: Mapping[str, str]) -> tuple[Popen[bytes], socket.socket]:
    """Start a program with a socket as its standard input; return the process and the other end of the socket.

    The program is in a session of its own: Ctrl-C in a terminal reaches this process only.
    """
    import socket
    import subprocess

    own, other = socket.socketpair()
    environment = {**os.environ, **variables}
    with other:
        if sys.platform == "win32":
            popen = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
            )
            assert popen.stdin is not None
            with popen.stdin as pipe:
                pipe.write(other.share(popen.pid))
        else:
            popen = subprocess.Popen(
                command, stdin=other.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment,
                start_new_session=True,
            )  # fmt: skip
    return popen, own


def connected_input() -> socket.socket:
    """Return the socket that `start_connected` gave to this process."""
    import socket

    if sys.platform == "win32":
        return socket.fromshare(sys.stdin.buffer.read())
    return socket.socket(fileno=os.dup(0))


def fork_process() -> int:
    """Copy this process, which has one thread; return the copy's number, and 0 in the copy."""
    if sys.platform == "win32":
        raise OSError("this system has no forks")
    return os.fork()


def end_fork(process: int) -> int:
    """End a copy of this process if it runs; return its exit code, below 0 a signal's number."""
    if sys.platform == "win32":
        raise OSError("this system has no forks")
    import signal

    ended, status = os.waitpid(process, os.WNOHANG)
    if ended != process:
        os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status)


def signal_name(number: int) -> str:
    """Return a signal's name; its number if it has none."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def limit_memory(nbytes: int) -> None:
    """Limit the address space of this process; without such limits, nothing happens."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (nbytes, nbytes))


def lower_priority() -> None:
    """Lower the priority of this process where cores are few; without priorities, nothing happens."""
    if sys.platform != "win32":
        os.nice(10)


def limit_growth(nbytes: int) -> None:
    """Limit the memory that this process may map besides its present memory; only Linux reports that."""
    if sys.platform == "linux":
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            most = int(file.read().split()[0]) * mmap.PAGESIZE + nbytes
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        limit_memory(most if hard == resource.RLIM_INFINITY else min(most, hard))


def limit_stack(nbytes: int) -> None:
    """Limit the stack of this process's first thread; without such limits, nothing happens."""
    if sys.platform != "win32":
        import resource

        hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
        most = nbytes if hard == resource.RLIM_INFINITY else min(nbytes, hard)
        resource.setrlimit(resource.RLIMIT_STACK, (most, hard))


def raise_file_limit() -> int:
    """Raise the limit of open files as far as allowed and return it; a large number without such limits."""
    if sys.platform == "win32":
        return 1 << 20
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1 << 16 if hard == resource.RLIM_INFINITY else min(hard, 1 << 16)
    with contextlib.suppress(ValueError, OSError):  # macOS has a lower limit that it does not report
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


def unused_addresses() -> int | None:
    """Return the bytes that this process may still map; None without a limit, or where the system reports none."""
    if sys.platform != "linux":
        return None
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    with open("/proc/self/statm", encoding="ascii") as file:
        return max(0, limit - int(file.read().split()[0]) * mmap.PAGESIZE)


def limit_processor(seconds: int) -> None:
    """Have the system end this process after so many more seconds of processor time, if it has such limits."""
    if sys.platform != "win32":
        import resource

        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        most = int(time.process_time()) + 1 + seconds
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


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


def silence(descriptor: int) -> None:
    """Discard what is written to a file from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def has_posix_threads() -> bool:
    """Return whether the functions of POSIX threads are in the process."""
    return sys.platform != "win32"


def cores() -> list[int]:
    """Return the cores on which this process may run, in order; none if the system does not say which."""
    if sys.platform == "linux":
        return sorted(os.sched_getaffinity(0))
    return []


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(cores()) or os.cpu_count() or 1


@contextlib.contextmanager
def moving_among_cores() -> Iterator[Callable[[int], None] | None]:
    """Yield what moves this thread to a core, by its number in `cores`; None where there is no other one."""
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


def wait_readable(descriptors: Collection[int], seconds: float) -> list[int]:
    """Wait until something can be read from some of these, or for so long; return those."""
    if sys.platform == "win32":
        return select.select(list(descriptors), [], [], seconds)[0]
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(seconds * 1000)]


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
"""What Linux says of a core that does not change while it runs."""


def processor_description() -> str:
    """Return what the system lists of the kinds of cores and their features; nothing where it does not."""
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
        """Map pages for so many bytes; raise OSError where the system protects none."""
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


def has_local_groups() -> bool:
    """Return whether processes can share memory and sockets that no other user reaches."""
    return sys.platform != "win32"


def create_shared_memory(nbytes: int) -> int:
    """Return the descriptor of new memory without a name, which cannot shrink where the system can promise that."""
    if sys.platform == "linux":
        import fcntl

        descriptor = os.memfd_create("mirlo", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, nbytes)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return descriptor
    import tempfile

    with tempfile.TemporaryFile() as file:
        descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, nbytes)
    return descriptor


def map_shared_memory(descriptor: int, nbytes: int, is_writable: bool = False) -> memoryview:
    """Map the memory of a descriptor, and close that; raise OSError if it has another size, or may shrink."""
    try:
        size = os.fstat(descriptor).st_size
        if size != nbytes:
            raise OSError(f"shared memory has {size} bytes, expected {nbytes}")
        if sys.platform == "linux":
            import fcntl

            if not fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
                raise OSError("shared memory may shrink while it is read")
        mapped = mmap.mmap(descriptor, nbytes, access=mmap.ACCESS_WRITE if is_writable else mmap.ACCESS_READ)
        return memoryview(mapped)
    finally:
        os.close(descriptor)


def listen_locally(path: Path, backlog: int) -> socket.socket:
    """Return a socket at a path that processes of this machine connect to; raise OSError if there is a file."""
    if sys.platform == "win32":
        raise OSError("this system has no local sockets that pass descriptors")
    import socket

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(os.fspath(path))
        path.chmod(0o600)
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener


def connect_locally(path: Path) -> socket.socket:
    """Return a socket that is connected to the listener at a path; raise OSError if there is none."""
    if sys.platform == "win32":
        raise OSError("this system has no local sockets that pass descriptors")
    import socket

    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(os.fspath(path))
    except BaseException:
        connection.close()
        raise
    return connection


def peer_of(connection: socket.socket) -> tuple[int, int] | None:
    """Return the process and the user at the other end of a local socket; None if unknown."""
    if sys.platform != "linux":
        return None
    import socket

    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    process, user, _ = struct.unpack("3i", credentials)
    return process, user


def watch_process(process: int) -> int | None:
    """Return a descriptor that can be read once a process has ended; None where there is none."""
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(process)
    except OSError:  # of another name space, or an old kernel: sockets tell of its end
        return None


def send_message(connection: socket.socket, message: bytes, descriptor: int | None = None) -> None:
    """Send a message, and a descriptor beside it."""
    if sys.platform == "win32" or descriptor is None:
        connection.sendall(message)
        return
    import socket

    sent = socket.send_fds(connection, [message], [descriptor])
    if sent < len(message):
        connection.sendall(message[sent:])


def receive_some(connection: socket.socket, most: int) -> tuple[bytes, list[int]]:
    """Return up to so many bytes that were received, empty at the end, and the descriptors beside them."""
    if sys.platform == "win32":
        return connection.recv(most), []
    import socket

    received, descriptors, _, _ = socket.recv_fds(connection, most, 4)
    return received, list(descriptors)


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
