"""Bounded processes parse, decode or render untrusted data with limits on time, memory and stack.

    images = BoundedWorker("mirlo.runtime.image_process")
    result = images.call("decode", file_content, most=1 << 26)

The module has a function `open`, which takes content and settings and returns functions by name (`bounded_process.py`).
If the process ends, for example by a crash in a library, that is a `BoundedFailure` here.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mirlo.runtime.bounded_process import PART, SIZES, Result
from mirlo.runtime.errors import MirloError
from mirlo.runtime.locks import make_lock
from mirlo.runtime.processes import can_fork, send_message, signal_name, start_connected
from mirlo.runtime.records import dataclass
from mirlo.runtime.system import available_cores

if TYPE_CHECKING:
    from subprocess import Popen

START_SECONDS = 120
"""Time in which a process must start and import a module, on a busy machine."""
MAX_HEADER, MAX_CONTENT = 1 << 20, 1 << 31
"""Bytes of the largest answer."""
WAITING = 5
"""How many times its processor time a call may take by the clock, on a busy machine, or where it waits."""
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from mirlo.runtime.bounded_process import main; main()"
)
_VARIABLES = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
"""What keeps libraries from starting threads, which copies of the process would not have."""


@dataclass(frozen=True)
class Bounds:
    """The resources that a bounded process may use."""

    seconds: int = 10
    """Of a call, and of opening the module: of processor time where the system limits that, of time elsewhere."""
    memory: int = 1 << 30
    """Bytes of address space; macOS and Windows do not limit them."""
    growth: int = 1 << 29
    """Bytes that a copy may take beside what the process has; only Linux limits them."""
    stack: int = 8 << 20
    """Bytes of the stack; Windows does not limit them."""
    is_background: bool = True
    """Whether all other processes come first; not so for a process whose caller does nothing but wait for it."""


BOUNDS = Bounds()


class BoundedFailure(MirloError):
    """Raised if a call in a bounded process has no result, with the reason, such as "it takes too much memory"."""

    error_code = "MIR0116"
    remedy = "The data took too much time or memory, or ended the process that read it: use smaller or valid data."


class BoundedRefusal(MirloError):
    """Raised where the function refuses its arguments."""

    error_code = "MIR0117"
    remedy = "The data is not valid for the format that it is said to have."


class _Started:
    """A process that this one started."""

    def __init__(self, popen: Popen[bytes]) -> None:
        self._popen = popen

    def end(self) -> int | None:
        """End the process; return its exit code, below 0 a signal's number."""
        self._popen.kill()
        return self._popen.wait()

    def end_later(self) -> None:
        """End the process, from a finalizer."""
        self.end()


class _Copied:
    """A copy that another process made of itself."""

    def __init__(self, origin: _Peer, process: int) -> None:
        self._origin, self._process = origin, process

    def end(self) -> int | None:
        """End the process; return its exit code, below 0 a signal's number."""
        try:
            result = self._origin.exchange({"message": "end", "process": self._process}, b"", START_SECONDS)
        except BoundedFailure:
            return None
        return int(result.value["code"])

    def end_later(self) -> None:
        """Have the process ended when its origin is used next; it ends by itself, as its socket is closed."""
        self._origin.ended.append(self._process)


class _Peer:
    """A process at the other end of a socket."""

    def __init__(self, connection: socket.socket, process: _Started | _Copied) -> None:
        self._connection, self._process, self._owner = connection, process, os.getpid()
        self._lock = make_lock()
        self.ended = deque[int]()
        """Copies of the process that are not needed any more."""
        self._finish = weakref.finalize(self, _finish, connection, process, self._owner)

    @property
    def is_usable(self) -> bool:
        """Return whether the process answers and was started by this process, not by its parent before a fork."""
        return self._owner == os.getpid() and self._finish.alive

    def fork(self, growth: int = 0) -> _Peer:
        """Return a copy of the process, which may take `growth` bytes more than what it has; 0 for no limit."""
        own, other = socket.socketpair()
        with other:
            header = {
                "message": "fork",
                "growth": growth,
                "ended": [self.ended.popleft() for _ in range(len(self.ended))],
            }
            result = self.exchange(header, b"", START_SECONDS, other.fileno())
        return _Peer(own, _Copied(self, int(result.value["process"])))

    def exchange(
        self, header: Mapping[str, object], content: bytes, seconds: float, descriptor: int | None = None
    ) -> Result:
        """Send a message and return the answer; end the process if there is none in time."""
        encoded, connection = json.dumps(header).encode(), self._connection
        with self._lock:
            if not self.is_usable:
                raise BoundedFailure("its process has ended")
            deadline = time.monotonic() + seconds
            try:
                connection.settimeout(seconds)
                send_message(connection, SIZES.pack(len(encoded), len(content)) + encoded, descriptor)
                connection.sendall(content)
                head, body = SIZES.unpack(self._read(SIZES.size, deadline))
                if head > MAX_HEADER or body > MAX_CONTENT:
                    raise EOFError
                answer: dict[str, Any] = json.loads(self._read(head, deadline))
                result = self._read(body, deadline)
            except TimeoutError:
                self.end()
                raise BoundedFailure(f"it takes longer than {seconds:.0f} s") from None
            except (OSError, EOFError, ValueError):
                raise BoundedFailure(_reason(self.end(), header)) from None
            except BaseException:  # such as Ctrl-C: a later answer would be taken for that to another message
                self.end()
                raise
        if "value" in answer:
            return Result(answer["value"], result)
        if "refused" in answer:
            raise BoundedRefusal(answer["refused"])
        raise BoundedFailure(answer["failed"])

    def _read(self, nbytes: int, deadline: float) -> bytes:
        parts = list[bytes]()
        while nbytes:
            self._connection.settimeout(max(deadline - time.monotonic(), 0.001))
            part = self._connection.recv(min(nbytes, PART))
            if not part:
                raise EOFError
            parts.append(part)
            nbytes -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def end(self) -> int | None:
        """End the process; return its exit code, below 0 a signal's number, None if that is not known."""
        if self._owner != os.getpid() or not self._finish.detach():
            return None
        self._connection.close()
        return self._process.end()


def _finish(connection: socket.socket, process: _Started | _Copied, owner: int) -> None:
    connection.close()
    if owner == os.getpid():  # not in a fork of the process that started it
        process.end_later()


def _reason(code: int | None, header: Mapping[str, object]) -> str:
    """Return why there is no answer to a message, by the exit code of the process."""
    if code is None:
        return "its process ended"
    if code >= 0:
        return f"its process ended with exit code {code}"
    name = signal_name(-code)
    if name == "SIGXCPU":
        return f"it takes longer than {header.get('seconds', 0)} s of processor time"
    return f"its process ended by signal {name}"


def _clock_seconds(seconds: int) -> float:
    """Return the time of a call that may take `seconds` of processor time, or of time where that is not limited."""
    return WAITING * seconds if can_fork() else seconds


_lock = make_lock()
_origins: list[_Peer] = []
"""The process that is copied, once there is one: a copy takes milliseconds, and has the modules that it imported."""


def _start() -> _Peer:
    popen, connection = start_connected([sys.executable, "-c", _START, json.dumps(sys.path)], _VARIABLES)
    return _Peer(connection, _Started(popen))


def _new_process(module: str) -> _Peer:
    """Return a process that has imported a module."""
    if not can_fork():
        return _start()
    with _lock:
        if not _origins or not _origins[0].is_usable:
            _origins[:] = [_start()]
        _origins[0].exchange({"message": "import", "module": module}, b"", START_SECONDS)
        return _origins[0].fork()


class Places:
    """As many places for work at a time as there are cores, at least two; in a fork of this process all are free."""

    def __init__(self) -> None:
        self._make()

    def _make(self) -> None:
        self._owner, self._free = os.getpid(), threading.Semaphore(max(2, available_cores()))

    def __enter__(self) -> None:
        if self._owner != os.getpid():
            self._make()
        self._free.acquire()

    def __exit__(self, *error: object) -> None:
        self._free.release()


class BoundedProcess:
    """A process that has opened a module; a call that fails may end it."""

    def __init__(self, worker: BoundedWorker, peer: _Peer) -> None:
        self._worker, self._peer = worker, peer

    @property
    def is_usable(self) -> bool:
        """Return whether the process answers and was started by this process, not by its parent before a fork."""
        return self._peer.is_usable

    def call(self, function: str, content: bytes = b"", /, seconds: int | None = None, **arguments: Any) -> Result:
        """Call a function; raise `BoundedFailure` or `BoundedRefusal` if it has no result."""
        seconds = self._worker.bounds.seconds if seconds is None else seconds
        header = {"message": "call", "name": function, "seconds": seconds, "arguments": arguments}
        return self._peer.exchange(header, content, _clock_seconds(seconds))

    def fork(self, bounds: Bounds | None = None) -> BoundedProcess:
        """Return a copy for calls that do not wait for other calls, and whose failures do not affect them."""
        if not can_fork():
            return self._worker.open()
        return BoundedProcess(self._worker, self._peer.fork((bounds or self._worker.bounds).growth))

    def end(self) -> None:
        """End the process."""
        self._peer.end()


class BoundedWorker:
    """A module and the process that has opened it, which is started again after it has ended."""

    def __init__(
        self, module: str, content: bytes = b"", settings: Mapping[str, object] | None = None, bounds: Bounds = BOUNDS
    ) -> None:
        """Pass the content and the settings to the module's `open` where a process is started."""
        self._module, self._content, self._settings, self.bounds = module, content, settings or {}, bounds
        self._lock = make_lock()
        self._process: BoundedProcess | None = None
        self._places = Places()
        """For single calls in copies: what they take together is bounded, too."""

    def open(self) -> BoundedProcess:
        """Return a new process that has opened the module."""
        peer, bounds = _new_process(self._module), self.bounds
        header = {
            "message": "open", "module": self._module, "settings": self._settings, "seconds": bounds.seconds,
            "memory": bounds.memory, "stack": bounds.stack, "is_background": bounds.is_background,
        }  # fmt: skip
        try:
            peer.exchange(header, self._content, _clock_seconds(bounds.seconds) if can_fork() else START_SECONDS)
        except BaseException:
            peer.end()
            raise
        return BoundedProcess(self, peer)

    def process(self) -> BoundedProcess:
        """Return the process that calls share; start one where there is none, or only that of a parent."""
        with self._lock:
            if self._process is None or not self._process.is_usable:
                self._process = self.open()
            return self._process

    def call(self, function: str, content: bytes = b"", /, **arguments: Any) -> Result:
        """Call a function; calls wait for one another."""
        return self.process().call(function, content, **arguments)

    def call_alone(
        self, function: str, content: bytes = b"", /, bounds: Bounds | None = None, **arguments: Any
    ) -> Result:
        """Call a function in a copy of the process, which ends afterwards: some calls run at a time."""
        with self._places:
            process = self.process().fork(bounds)
            try:
                return process.call(function, content, seconds=(bounds or self.bounds).seconds, **arguments)
            finally:
                process.end()
