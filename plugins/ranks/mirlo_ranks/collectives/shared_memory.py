"""The transport `shared-memory`: ranks of one user on one machine.

Each rank has memory that it writes and the others read. Memory has no name: its descriptor is sent over a local socket
between each two ranks. For an exchange, a rank copies its operand to its memory, sends each other rank a header, and
waits for theirs. The end of a process ends its sockets, and the others' waiting, at once. A process that is stopped
keeps its sockets: it no longer counts its heartbeat, which the others read while they wait.
"""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import tempfile
import time
import weakref
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mirlo.extend.ranks import (
    PERIOD,
    TIMEOUT,
    HeartbeatMonitor,
    RankError,
    RankPlace,
    connect_locally,
    create_shared_memory,
    effective_user,
    has_local_groups,
    heartbeat_seconds,
    listen_locally,
    make_private,
    map_shared_memory,
    own_heartbeat,
    peer_of,
    receive_some,
    send_message,
    stopped_error,
    timeout_seconds,
    unsafe_folder,
)
from mirlo.extend.runtime import (
    ExternalArtifact,
    ExternalFunctions,
    LoadContext,
    after_fork,
    wait_readable,
    watch_process,
)
from mirlo_ranks.collectives.calls import rank_functions
from mirlo_ranks.collectives.program import RankExchange

FOLDER = "MIRLO_RANKS_FOLDER"
"""An environment variable: the folder in which ranks find each other."""
MOST_BYTES = 1 << 40
"""Most bytes of an operand."""
_HELLO = struct.Struct("<8sII32s")
_HEADER = struct.Struct("<QQQQ")
_MAGIC = b"mirlork2"
_PAUSE = 0.02
"""Seconds between two attempts to find another rank."""
_GROUPS: weakref.WeakSet[SharedMemoryGroup] = weakref.WeakSet()
_JOINED: Counter[str] = Counter()
"""Number of groups that this process has joined; all ranks call their models in the same order."""


def load(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
    """Return the functions of a region; the first call connects the ranks."""
    return rank_functions(artifact, join_group)


def join_group(place: RankPlace, digest: str) -> SharedMemoryGroup:
    """Connect this rank with all others."""
    if not has_local_groups():
        raise RankError("this system cannot share memory between ranks: compile for 'collectives{transport=mpi}'")
    if place.local_ranks != place.ranks:
        raise RankError(
            f"{place.local_ranks} of the {place.ranks} ranks are on this machine, and shared memory is for one: "
            "compile for 'collectives{transport=mpi}'"
        )
    key = hashlib.sha256(f"{place.job}\n{place.ranks}".encode()).hexdigest()[:24]
    name = f"{key}-{_JOINED[key]}"
    _JOINED[key] += 1
    meeting = _Meeting(_folder(), name, place, bytes.fromhex(digest), timeout_seconds(), heartbeat_seconds())
    peers = meeting.peers()
    group = SharedMemoryGroup(place, peers, meeting.seconds)
    _GROUPS.add(group)
    return group


def _folder() -> Path:
    """Return a folder that only this user can access."""
    named = os.environ.get(FOLDER)
    folder = Path(named or Path(tempfile.gettempdir()) / f"mirlo-ranks-{effective_user()}")
    make_private(folder)
    problem = unsafe_folder(folder)
    if problem is None and folder.stat().st_mode & 0o077:
        problem = f"{folder} can be entered by others: 'chmod 700' it"
    if problem is not None:
        raise RankError(f"the folder in which ranks meet: {problem} ({FOLDER})")
    return folder


@dataclass(eq=False)
class Peer:
    """The connection to another rank."""

    rank: int
    connection: socket.socket
    watch: int | None
    """A descriptor that becomes readable when the rank's process ends."""
    heartbeat: HeartbeatMonitor | None = None
    memory: memoryview | None = None
    received: bytes = b""
    descriptors: list[int] = field(default_factory=list)

    def close(self) -> None:
        """Close the connection and its memory."""
        self.connection.close()
        for descriptor in (*self.descriptors, *([] if self.watch is None else [self.watch])):
            os.close(descriptor)
        self.watch, self.descriptors = None, []


@dataclass(frozen=True)
class _Meeting:
    """Connects ranks: each listens at a path, and connects to those with lower numbers."""

    folder: Path
    name: str
    place: RankPlace
    digest: bytes
    seconds: float
    heartbeat_seconds: float

    def peers(self) -> list[Peer]:
        own, deadline = self.place.rank, time.monotonic() + self.seconds
        path = self._path(own)
        listener = self._listen(path)
        peers: list[Peer] = []
        try:
            for rank in range(own):
                peers.append(self._greeted(self._connected(rank, deadline), deadline, rank))
            while len(peers) < self.place.ranks - 1:
                listener.settimeout(max(deadline - time.monotonic(), 0.001))
                connection, _ = listener.accept()
                peer = self._greeted(connection, deadline, None)
                if any(each.rank == peer.rank for each in peers):
                    peer.close()
                    raise RankError(f"two processes claim to be rank {peer.rank}")
                peers.append(peer)
        except TimeoutError:
            here = {own, *(peer.rank for peer in peers)}
            missing = ", ".join(str(rank) for rank in range(self.place.ranks) if rank not in here)
            _close_all(peers)
            raise RankError(f"rank {own} waited {self.seconds:g} s for rank {missing} to start ({TIMEOUT})") from None
        except BaseException:
            _close_all(peers)
            raise
        finally:
            listener.close()
            path.unlink(missing_ok=True)
        return sorted(peers, key=lambda peer: peer.rank)

    def _path(self, rank: int) -> Path:
        return self.folder / f"{self.name}-{rank}"

    def _listen(self, path: Path) -> socket.socket:
        try:
            return listen_locally(path, self.place.ranks)
        except OSError as error:
            if not path.is_socket():
                why = error.strerror or error
                raise RankError(f"rank {self.place.rank} cannot listen at {path}: {why} ({FOLDER})") from None
        with suppress(OSError):  # of a process that has ended
            connect_locally(path).close()
            raise RankError(f"there is a rank {self.place.rank} of this model already: give each run another MIRLO_JOB")
        path.unlink(missing_ok=True)
        return listen_locally(path, self.place.ranks)

    def _connected(self, rank: int, deadline: float) -> socket.socket:
        while time.monotonic() < deadline:
            with suppress(FileNotFoundError, ConnectionRefusedError, BlockingIOError):
                return connect_locally(self._path(rank))
            time.sleep(_PAUSE)
        raise TimeoutError

    def _greeted(self, connection: socket.socket, deadline: float, expected: int | None) -> Peer:
        """Exchange the identities of both ends; refuse a rank of another model or another user."""
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        process_and_user = peer_of(connection)
        peer = Peer(-1, connection, None)
        try:
            if process_and_user is not None and process_and_user[1] != effective_user():
                raise RankError(f"a process of user {process_and_user[1]} wants to be a rank: it is refused")
            hello = _HELLO.pack(_MAGIC, self.place.rank, self.place.ranks, self.digest)
            send_message(connection, hello, own_heartbeat())
            magic, rank, ranks, digest = _HELLO.unpack(_receive_exactly(peer, _HELLO.size))
            is_other = expected is not None and rank != expected
            if magic != _MAGIC or ranks != self.place.ranks or rank >= ranks or rank == self.place.rank or is_other:
                raise RankError("a process that is no rank of this model has connected")
            if digest != self.digest:
                raise RankError(f"rank {rank} runs another model, or another version: compile it for all ranks again")
            peer.heartbeat = self._monitored(peer, rank)
        except BaseException:
            peer.close()
            raise
        connection.setblocking(False)
        peer.rank = rank
        peer.watch = None if process_and_user is None else watch_process(process_and_user[0])
        return peer

    def _monitored(self, peer: Peer, rank: int) -> HeartbeatMonitor:
        """Return the heartbeat monitor of a rank, whose descriptor came with its greeting."""
        if len(peer.descriptors) != 1:
            raise RankError(f"rank {rank} sent {len(peer.descriptors)} descriptors, expected that of its heartbeat")
        try:
            return HeartbeatMonitor(peer.descriptors.pop(), self.heartbeat_seconds)
        except OSError as error:
            raise RankError(f"the heartbeat of rank {rank}: {error}") from None


class SharedMemoryGroup:
    """This rank's memory, and its connections to the others."""

    def __init__(self, place: RankPlace, peers: list[Peer], seconds: float) -> None:
        self._place, self._peers, self._seconds = place, peers, seconds
        self._memory: memoryview | None = None
        self._capacity = 0
        """Bytes of each of the two halves of the memory, which exchanges use in turn."""
        self._count = 0
        self._problem: RankError | None = None

    def exchange(self, number: int, exchange: RankExchange, x: np.ndarray, out: np.ndarray) -> None:
        """Write the result of an exchange with all other ranks."""
        if self._problem is not None:
            raise self._problem
        try:
            self._send(number, x)
            arrays = self._receive(number, exchange, x)
        except RankError as problem:
            self._problem = problem
            self.close()
            raise
        exchange.combine(arrays, self._place.rank, out)

    def _send(self, number: int, x: np.ndarray) -> None:
        """Copy an operand to the half of memory that no rank reads now, and signal the others.

        They have read the half of the exchange before last: they sent the header of the last one afterwards.
        """
        self._count += 1
        descriptor = self._grown(x.nbytes) if x.nbytes > self._capacity else None
        if x.nbytes:
            np.copyto(self._view(self._memory, self._capacity, x), x)
        header = _HEADER.pack(self._count, number, x.nbytes, self._capacity)
        try:
            for peer in self._peers:
                try:
                    send_message(peer.connection, header, descriptor)
                except OSError:
                    raise self._ended(peer, number) from None
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _grown(self, nbytes: int) -> int:
        self._capacity = max(1 << 16, 1 << (nbytes - 1).bit_length())
        descriptor = create_shared_memory(2 * self._capacity)
        self._memory = map_shared_memory(os.dup(descriptor), 2 * self._capacity, is_writable=True)
        return descriptor

    def _receive(self, number: int, exchange: RankExchange, x: np.ndarray) -> list[np.ndarray]:
        """Return the operands of all ranks, as views of their memory."""
        arrays: dict[int, np.ndarray] = {self._place.rank: x}
        waiting = {peer.connection.fileno(): peer for peer in self._peers}
        watches = {peer.watch: peer for peer in self._peers if peer.watch is not None}
        deadline = time.monotonic() + self._seconds
        while waiting:
            left = max(deadline - time.monotonic(), 0)
            ready = wait_readable((*waiting, *watches), min(left, PERIOD))
            if not ready:
                self._require_alive(list(waiting.values()), number, is_late=left <= PERIOD)
            for descriptor in sorted(ready, key=watches.__contains__):
                peer = waiting.get(descriptor)
                if peer is not None:
                    if self._read(peer, number):
                        arrays[peer.rank] = self._operand(peer, number, exchange, x)
                        del waiting[descriptor]
                elif descriptor in watches and watches[descriptor] in waiting.values():
                    raise self._ended(watches[descriptor], number)
                elif descriptor in watches:
                    del watches[descriptor]
        return [arrays[rank] for rank in range(self._place.ranks)]

    def _require_alive(self, waiting: list[Peer], number: int, is_late: bool) -> None:
        """Raise an error if ranks that have sent nothing are stopped or exceed the timeout."""
        own = self._place.rank
        for peer in waiting:
            if peer.heartbeat is not None and peer.heartbeat.is_silent():
                consequence = f"rank {own} waits for it in exchange {number}; end it, and start all ranks again"
                raise stopped_error(peer.rank, peer.heartbeat.seconds, consequence)
        if is_late:
            slow = ", ".join(str(peer.rank) for peer in waiting)
            raise RankError(f"rank {own} waited {self._seconds:g} s for rank {slow} ({TIMEOUT})")

    def _read(self, peer: Peer, number: int) -> bool:
        """Read the data that a rank has sent; return whether its header is complete."""
        try:
            received, descriptors = receive_some(peer.connection, _HEADER.size - len(peer.received))
        except BlockingIOError:
            return False
        except OSError:
            received, descriptors = b"", []
        peer.descriptors += descriptors
        if not received:
            raise self._ended(peer, number)
        peer.received += received
        return len(peer.received) == _HEADER.size

    def _operand(self, peer: Peer, number: int, exchange: RankExchange, x: np.ndarray) -> np.ndarray:
        """Return a rank's operand, which must have the size of this rank's."""
        count, other, nbytes, capacity = _HEADER.unpack(peer.received)
        peer.received = b""
        if (count, other) != (self._count, number):
            raise RankError(f"rank {peer.rank} is in another exchange, {other}, than rank {self._place.rank}, {number}")
        if nbytes != x.nbytes:
            own = f"{x.nbytes} bytes of rank {self._place.rank}: all ranks need inputs of the same shapes"
            raise RankError(f"{exchange.kind} of {nbytes} bytes of rank {peer.rank}, but {own}")
        if peer.descriptors:
            first, *others = peer.descriptors
            peer.descriptors = others
            if others or not 0 < capacity <= MOST_BYTES:
                os.close(first)
                raise RankError(f"rank {peer.rank} sent what is no memory of a rank")
            try:
                peer.memory = map_shared_memory(first, 2 * capacity)
            except (OSError, ValueError) as error:
                raise RankError(f"the memory of rank {peer.rank}: {error}") from None
        if nbytes > capacity or (nbytes and (peer.memory is None or len(peer.memory) != 2 * capacity)):
            raise RankError(f"rank {peer.rank} names memory that it has not sent")
        return self._view(peer.memory, capacity, x)

    def _view(self, memory: memoryview | None, capacity: int, x: np.ndarray) -> np.ndarray:
        if not x.nbytes or memory is None:
            return np.empty(x.shape, x.dtype)
        offset = capacity * (self._count & 1)
        return np.frombuffer(memory, x.dtype, x.size, offset).reshape(x.shape)

    def _ended(self, peer: Peer, number: int) -> RankError:
        return RankError(
            f"rank {peer.rank} has ended, and rank {self._place.rank} waits for it in exchange {number}: its own "
            "output says why; start all ranks again"
        )

    def close(self) -> None:
        """Close all connections, which the other ranks notice."""
        _close_all(self._peers)
        self._peers = []
        if self._problem is None:
            self._problem = RankError("this rank has left the group")


def _close_all(peers: list[Peer]) -> None:
    for peer in peers:
        peer.close()


def _receive_exactly(peer: Peer, size: int) -> bytes:
    received = b""
    while len(received) < size:
        more, descriptors = receive_some(peer.connection, size - len(received))
        peer.descriptors += descriptors
        if not more:
            raise RankError("another rank has ended while the ranks were connecting")
        received += more
    return received


def _forget_groups() -> None:
    """Close the connections in the child of a fork, which belong to the parent."""
    for group in list(_GROUPS):
        group.close()


after_fork(_forget_groups)
