"""Frames between a host and a runner, with tags by HMAC; `targets/llvm/library/c/runner_wire.c` is the other side."""

from __future__ import annotations

import contextlib
import enum
import hashlib
import hmac
import secrets
import socket
import struct
import time

from mirlo.runtime.errors import MirloError
from mirlo.runtime.names import terminal
from mirlo.runtime.records import dataclass

VERSION = 1
"""The version of the protocol."""
DEFAULT_PORT = 9190
MAGIC = b"MIRLORUN"
GREETING = struct.Struct("<8sII32s")
"""Magic, version, state, nonce."""
HEADER = struct.Struct("<II")
"""Kind and bytes of a payload."""
NONCE_BYTES = 32
TAG_BYTES = 32
MAX_PAYLOAD = 1 << 20
"""Bytes of a payload; what is larger is several frames."""
MAX_MESSAGE = 1024
"""Characters of a failure that are shown."""
MIN_TOKEN, MAX_TOKEN = 16, 256
"""Bytes of a token."""
BUSY = 1
"""The state of a runner that serves another host."""
CONNECT_SECONDS = 10.0
FRAME_SECONDS = 30.0
"""Time in which a frame must be sent or come, where nothing is computed for it."""
BUSY_SECONDS = 5.0
"""Time in which a runner may become free: it may still be ending the session of a host that left."""


class FrameKind(enum.IntEnum):
    """The kinds of frames: requests of the host, then replies of the runner."""

    START = 1
    FEATURES = 2
    LOAD = 3
    DATA = 4
    INPUTS = 5
    RUN = 6
    FREE = 7
    OK = 64
    FAILED = 65
    PART = 66
    REFUSED = 67


class FailureCode(enum.IntEnum):
    """The kinds of failures."""

    BAD_FRAME = 1
    LIMIT = 2
    MODEL = 3
    CRASH = 4
    TIMEOUT = 5


class RemoteError(MirloError):
    """A model that a runner does not load or run; the runner continues."""

    error_code = "MIR0111"
    remedy = "Check the address, the token and the runner of the board: `mirlo remote HOST`."


class RunnerLost(RemoteError):
    """A runner that cannot be reached, refuses this host, or has left."""

    error_code = "MIR0112"
    remedy = "Start the runner on the board again; its memory or time may not suffice for the model."


@dataclass(frozen=True)
class RunnerAddress:
    """The address at which a runner listens."""

    host: str
    port: int = DEFAULT_PORT

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> RunnerAddress:
    """Parse HOST or HOST:PORT; an IPv6 address stands in brackets."""
    bracketed, closing, rest = text[1:].partition("]") if text.startswith("[") else ("", "", "")
    host, colon, port = (bracketed, rest[:1], rest[1:]) if closing else text.partition(":")
    number = int(port) if port.isascii() and port.isdigit() else 0
    if not host or (rest and not colon) or (colon and not 0 < number < 1 << 16):
        raise ValueError(f"expected HOST or HOST:PORT, found '{text}'")
    return RunnerAddress(host, number or DEFAULT_PORT)


def check_token(token: str) -> bytes:
    """Return the bytes of a token; refuse one that no runner has."""
    content = token.strip("\r\n").encode()
    if not MIN_TOKEN <= len(content) <= MAX_TOKEN or b"\0" in content:
        raise RunnerLost(f"expected a token of {MIN_TOKEN} to {MAX_TOKEN} bytes, found {len(content)}")
    return content


class Connection:
    """A session with a runner: requests and their replies, in order."""

    def __init__(self, address: RunnerAddress, token: bytes) -> None:
        self.address = address
        self._socket, nonce = _connected(address)
        try:
            own = secrets.token_bytes(NONCE_BYTES)
            secret = hashlib.sha256(token).digest()
            self._keys = [hmac.digest(secret, name + nonce + own, "sha256") for name in (b"host", b"board")]
            self._counts = [0, 0]
            self._send_bytes(GREETING.pack(MAGIC, VERSION, 0, own))
            self.facts = self.request(FrameKind.START)
        except BaseException:
            self._socket.close()
            raise

    def request(self, kind: FrameKind, payload: bytes = b"", seconds: float = FRAME_SECONDS) -> bytes:
        """Send a request and return the payload of the reply; raise an error with the runner's text if it failed."""
        self.send(kind, payload)
        return self.receive(FrameKind.OK, seconds)

    def send(self, kind: FrameKind, payload: bytes | memoryview = b"") -> None:
        """Send a frame."""
        header = HEADER.pack(kind, len(payload))
        self._send_bytes(b"".join((header, payload, self._tag(0, header, payload))))

    def send_parts(self, *contents: bytes | memoryview) -> None:
        """Send the bytes of contents, one after the other."""
        for content in contents:
            view = memoryview(content).cast("B")
            for start in range(0, len(view), MAX_PAYLOAD):
                self.send(FrameKind.DATA, view[start : start + MAX_PAYLOAD])

    def receive_parts(self, count: int, seconds: float = FRAME_SECONDS) -> bytes:
        """Return this many bytes, which come in several frames."""
        content = bytearray()
        while len(content) < count:
            part = self.receive(FrameKind.PART, seconds)
            if not part or len(part) > count - len(content):
                raise self._lost("it sent another number of bytes than it announced")
            content += part
        return bytes(content)

    def receive(self, kind: FrameKind, seconds: float) -> bytes:
        """Return the payload of the next frame, which must be of a kind."""
        deadline = time.monotonic() + seconds
        header = self._receive_bytes(HEADER.size, deadline)
        number, count = HEADER.unpack(header)
        if count > MAX_PAYLOAD:
            raise self._lost(f"it sent a frame of {count} bytes")
        payload, tag = self._receive_bytes(count, deadline), self._receive_bytes(TAG_BYTES, deadline)
        if number == FrameKind.REFUSED and not self._counts[1]:
            raise self._lost("it has another token: give the one that the runner was started with")
        if not hmac.compare_digest(tag, self._tag(1, header, payload)):
            raise self._lost("it has another token, or its bytes were changed on the way")
        if number == FrameKind.FAILED and len(payload) >= 4:
            raise _failure(self.address, int.from_bytes(payload[:4], "little"), payload[4:])
        if number != kind:
            raise self._lost(f"expected a reply of kind {kind.name}, found kind {number}")
        return payload

    def close(self) -> None:
        """End the session; the runner frees all models of it."""
        self._socket.close()

    def _tag(self, way: int, header: bytes, payload: bytes | memoryview) -> bytes:
        count = self._counts[way]
        self._counts[way] += 1
        tag = hmac.new(self._keys[way], count.to_bytes(8, "little") + header, "sha256")
        tag.update(payload)
        return tag.digest()

    def _send_bytes(self, content: bytes | memoryview) -> None:
        try:
            self._socket.settimeout(FRAME_SECONDS)
            self._socket.sendall(content)
        except OSError:
            raise self._lost("it ended the session: was it stopped, or idle for longer than its --idle?") from None

    def _receive_bytes(self, count: int, deadline: float) -> bytes:
        content = bytearray()
        while len(content) < count:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                part = self._socket.recv(min(count - len(content), MAX_PAYLOAD))
            except TimeoutError:
                raise self._lost("it did not reply in time") from None
            except OSError as error:
                raise self._lost(f"{error.strerror or error}") from None
            if not part:
                raise self._lost("it ended the session: was it stopped, or idle for longer than its --idle?")
            content += part
        return bytes(content)

    def _lost(self, why: str) -> RunnerLost:
        self.close()
        return RunnerLost(f"the runner at {self.address}: {why}")


def _connected(address: RunnerAddress) -> tuple[socket.socket, bytes]:
    """Return a socket of a free runner, and its nonce; wait a little for a busy one."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        own, state, nonce = _greeted(address)
        if state != BUSY:
            return own, nonce
        own.close()
        if time.monotonic() > deadline:
            raise RunnerLost(f"the runner at {address} serves another host: wait until it has left, or start a second")
        time.sleep(0.05)


def _greeted(address: RunnerAddress) -> tuple[socket.socket, int, bytes]:
    try:
        own = socket.create_connection((address.host, address.port), timeout=CONNECT_SECONDS)
    except OSError as error:
        why = "no reply" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise RunnerLost(f"there is no runner at {address} ({why}): start it there, as 'mirlo remote' says") from None
    greeting = bytearray()
    with contextlib.suppress(OSError):
        while len(greeting) < GREETING.size and (part := own.recv(GREETING.size - len(greeting))):
            greeting += part
    if len(greeting) < GREETING.size or bytes(greeting[: len(MAGIC)]) != MAGIC:
        own.close()
        raise RunnerLost(f"what listens at {address} is no runner of Mirlo")
    _, version, state, nonce = GREETING.unpack(greeting)
    if version != VERSION:
        own.close()
        raise RunnerLost(
            f"the runner at {address} speaks version {version} of the protocol, this Mirlo version {VERSION}: build it "
            "again with 'mirlo remote'"
        )
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return own, state, nonce


def _failure(address: RunnerAddress, code: int, message: bytes) -> RemoteError:
    text = terminal(message[:MAX_MESSAGE].decode("utf-8", "replace"))
    if code == FailureCode.BAD_FRAME:
        return RunnerLost(f"the runner at {address}: {text}")
    return RemoteError(f"on {address}: {text}")
