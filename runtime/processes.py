"""Differences between operating systems in processes: forks, groups, signals, limits, local sockets, shared memory.

Where a system lacks something, the function documents the behaviour instead. See `system.py`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import mmap
import os
import select
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, NoReturn

if TYPE_CHECKING:
    import socket
    from subprocess import Popen


def can_fork() -> bool:
    """Return whether a process can be copied."""
    return sys.platform != "win32"


def after_fork(
    in_child: Callable[[], object],
    before: Callable[[], object] | None = None,
    in_parent: Callable[[], object] | None = None,
) -> None:
    """Register functions that each fork calls; on a system without forks, do nothing."""
    if sys.platform != "win32":
        callbacks = {"before": before, "after_in_parent": in_parent}
        os.register_at_fork(after_in_child=in_child, **{k: call for k, call in callbacks.items() if call is not None})


class ForkResult(NamedTuple):
    """The exit status of a fork."""

    content: bytes
    """What its function returned; the part that was written if the fork died."""
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
    count = _thread_count()
    blas = _openblas() if count > 1 and threading.active_count() < 2 else None
    if blas is not None and count == blas.scipy_openblas_get_num_threads64_():
        blas.blas_thread_shutdown_()


def _openblas() -> Any:
    """Return the library of NumPy's OpenBLAS; None if it has another library of matrix products, or is not loaded."""
    numpy = sys.modules.get("numpy._core._multiarray_umath") or sys.modules.get("numpy.core._multiarray_umath")
    if numpy is None:
        return None
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        blas = ctypes.CDLL(numpy.__file__)
        if blas.scipy_openblas_get_num_threads64_ and blas.scipy_openblas_set_num_threads64_:
            return blas
    return None


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Compute the products of NumPy's OpenBLAS on one thread: others wait for each other where cores are busy."""
    blas = _openblas()
    count = blas.scipy_openblas_get_num_threads64_() if blas is not None else 1
    if count > 1:
        blas.scipy_openblas_set_num_threads64_(1)
    try:
        yield
    finally:
        if count > 1:
            blas.scipy_openblas_set_num_threads64_(count)


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
    """Leave the parent's terminal, close its files, and reset the handlers of signals."""
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
    """Return the number of files that this process has open; 0 if unknown."""
    folder = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
    return len(os.listdir(folder)) if os.path.isdir(folder) else 0


@contextlib.contextmanager
def interrupt_after(seconds: float) -> Iterator[None]:
    """Raise KeyboardInterrupt in the main thread, after this many seconds, unless the block has ended."""
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
    """Make this process the first of a group, which `end_group` ends; on a system without groups, do nothing."""
    if sys.platform != "win32":
        os.setsid()


def end_group(leader: int) -> None:
    """End a process and those of its group; on Linux, also those that it started in groups of their own.

    On a system without groups, do nothing.
    """
    if sys.platform != "win32":
        import signal

        members = _members(leader) if sys.platform == "linux" else {}
        _signal_group(leader, signal.SIGKILL)
        for process in members:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended
                os.kill(process, signal.SIGKILL)


def group_seconds(leader: int) -> float | None:
    """Return the processor time of a group, of processes that it started in groups of their own, and that it reaped.

    Return None where it cannot be read.
    """
    if sys.platform != "linux":
        return None
    return sum(_members(leader).values()) / os.sysconf("SC_CLK_TCK")


class _ProcessStat(NamedTuple):
    """What Linux records of a process."""

    parent: int
    group: int
    ticks: int
    """Its processor time, and that of children that have ended."""


def _members(leader: int) -> dict[int, int]:
    """Return the processes of a group and all that these started, with their processor time in ticks."""
    stats: dict[int, _ProcessStat] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()  # after the name: state, parent, group, ...
            stats[int(name)] = _ProcessStat(int(fields[1]), int(fields[2]), sum(map(int, fields[11:15])))
    children: dict[int, list[int]] = {}
    for process, stat in stats.items():
        children.setdefault(stat.parent, []).append(process)
    members: dict[int, int] = {}
    waiting = [process for process, stat in stats.items() if stat.group == leader]
    while waiting:
        process = waiting.pop()
        if process not in members:
            members[process] = stats[process].ticks
            waiting += children.get(process, ())
    return members


def end_with_parent() -> None:
    """Have Linux kill this process when its parent ends, even while it is stopped; elsewhere, do nothing."""
    if sys.platform == "linux":
        import ctypes
        import signal

        signal_of_death = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(signal_of_death, int(signal.SIGKILL), 0, 0, 0)


def stop_group(leader: int) -> None:
    """Stop a process and those of its group until they continue; on a system without groups, do nothing."""
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
    """Limit the address space of this process; on a system without such limits, do nothing."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (nbytes, nbytes))


def lower_priority() -> None:
    """Lower the priority of this process so that others run first; on a system without priorities, do nothing."""
    if sys.platform != "win32":
        os.nice(10)


def limit_growth(nbytes: int) -> None:
    """Limit the memory that this process may map in addition to what it has; except on Linux, do nothing."""
    if sys.platform == "linux":
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            most = int(file.read().split()[0]) * mmap.PAGESIZE + nbytes
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        limit_memory(most if hard == resource.RLIM_INFINITY else min(most, hard))


def limit_stack(nbytes: int) -> None:
    """Limit the stack of this process's first thread; on a system without such limits, do nothing."""
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
    """Have the system end this process after this many more seconds of processor time, if it has such limits."""
    if sys.platform != "win32":
        import resource

        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        most = int(time.process_time()) + 1 + seconds
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def silence(descriptor: int) -> None:
    """Discard what is written to a file from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def wait_readable(descriptors: Collection[int], seconds: float) -> list[int]:
    """Wait until one of these files can be read, at most this many seconds; return those that can."""
    if sys.platform == "win32":
        return select.select(list(descriptors), [], [], seconds)[0]
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(seconds * 1000)]


def has_local_groups() -> bool:
    """Return whether processes can share memory and sockets that no other user reaches."""
    return sys.platform != "win32"


def create_shared_memory(nbytes: int) -> int:
    """Return the descriptor of new memory without a name; on Linux it cannot shrink."""
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
    """Map the memory of a descriptor and close the descriptor; raise OSError for another size, or if it may shrink."""
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
    except OSError:  # of another name space, or an old kernel: its sockets are closed at its end
        return None


def send_message(connection: socket.socket, message: bytes, descriptor: int | None = None) -> None:
    """Send a message and, if there is one, a descriptor with it."""
    if sys.platform == "win32" or descriptor is None:
        connection.sendall(message)
        return
    import socket

    sent = socket.send_fds(connection, [message], [descriptor])
    if sent < len(message):
        connection.sendall(message[sent:])


def receive_some(connection: socket.socket, most: int) -> tuple[bytes, list[int]]:
    """Return up to this many bytes that were received, empty at the end, and the descriptors that came with them."""
    if sys.platform == "win32":
        return connection.recv(most), []
    import socket

    received, descriptors, _, _ = socket.recv_fds(connection, most, 4)
    return received, list(descriptors)


def leave(code: int) -> NoReturn:
    """End the process like `sys.exit`: run exit handlers and flush output."""
    if _is_watched() or _has_running_threads():
        sys.exit(code)
    # Also the finalizers of `weakref.finalize`, with which temporary folders go away.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError) as error:
            # A closed pipe or a full disk: what was printed is lost.
            code = code or 1
            with contextlib.suppress(OSError, ValueError):
                print(f"{stream.name}: {error}", file=sys.stderr, flush=True)
    os._exit(code)


def _is_watched() -> bool:
    """Return whether a profiler, a debugger or a prompt needs the process afterwards."""
    monitoring = getattr(sys, "monitoring", None)
    tools = any(monitoring.get_tool(i) is not None for i in range(6)) if monitoring is not None else False
    return tools or sys.gettrace() is not None or sys.getprofile() is not None or bool(sys.flags.interactive)


def _has_running_threads() -> bool:
    """Return whether there are threads that the process waits for."""
    return any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread())
