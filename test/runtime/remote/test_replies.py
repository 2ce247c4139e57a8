"""Replies of a board: without the right tag, of another kind or length, they end the session; texts are escaped."""

from __future__ import annotations

import hashlib
import hmac
import random
import socket
import threading
from collections.abc import Callable
from typing import TypeAlias

import pytest

from mirlo.runtime.remote import wire
from mirlo.runtime.remote.wire import FrameKind, RemoteError, RunnerAddress, RunnerLost

TOKEN = b"a token for tests"
Reply: TypeAlias = Callable[[bytes], bytes]
"""Makes the bytes of a reply with the board's key."""


def _frame(kind: int, payload: bytes, key: bytes, count: int | None = None) -> bytes:
    """Return a frame with the right tag; `count` is the length that its header says."""
    header = wire.HEADER.pack(kind, len(payload) if count is None else count)
    return header + payload + hmac.digest(key, bytes(8) + header + payload, "sha256")


def _answered(reply: Reply) -> wire.Connection:
    """Return a session with a board that answers the first frame, then closes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        nonce = bytes(wire.NONCE_BYTES)
        with listener, listener.accept()[0] as peer:
            peer.sendall(wire.GREETING.pack(wire.MAGIC, wire.VERSION, 0, nonce))
            stream = peer.makefile("rb")
            own = wire.GREETING.unpack(stream.read(wire.GREETING.size))[-1]
            stream.read(wire.HEADER.size + wire.TAG_BYTES)
            peer.sendall(reply(hmac.digest(hashlib.sha256(TOKEN).digest(), b"board" + nonce + own, "sha256")))

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    try:
        return wire.Connection(RunnerAddress(*listener.getsockname()), TOKEN)
    finally:
        thread.join(20)


def test_a_reply_with_its_tag_is_taken() -> None:
    connection = _answered(lambda key: _frame(FrameKind.OK, b"facts", key))
    assert connection.facts == b"facts"
    connection.close()


@pytest.mark.parametrize("seed", range(20))
def test_changed_replies_end_the_session(seed: int) -> None:
    """Any byte of the payload, of the tag or of the kind; and what only a board without the token sends."""
    rng = random.Random(seed)

    def changed(key: bytes) -> bytes:
        frame = bytearray(_frame(FrameKind.OK, rng.randbytes(rng.randrange(1, 40)), key))
        place = rng.choice([*range(4), *range(wire.HEADER.size, len(frame))])
        frame[place] ^= rng.randrange(1, 256)
        return bytes(frame)

    with pytest.raises(RunnerLost):
        _answered(changed if seed % 4 else lambda key: _frame(FrameKind.OK, b"facts", bytes(32)))


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (lambda key: _frame(FrameKind.PART, b"", key), "expected a reply of kind OK, found kind"),
        (lambda key: _frame(200, b"", key), "expected a reply of kind OK, found kind 200"),
        (lambda key: _frame(FrameKind.OK, b"", key, (1 << 32) - 1), "it sent a frame of 4294967295 bytes"),
        (lambda key: _frame(FrameKind.OK, b"facts", key)[:-1], "it ended the session"),
        (lambda key: b"", "it ended the session"),
        (lambda key: _frame(FrameKind.REFUSED, b"", bytes(32)), "it has another token"),
    ],
)
def test_wrong_replies_end_the_session(reply: Reply, problem: str) -> None:
    with pytest.raises(RunnerLost, match=problem):
        _answered(reply)


def test_texts_of_failures_are_escaped() -> None:
    hostile = b"\x1b[2J\r\n\x07" + "\u202e".encode() + b"\xff" + b"a" * (1 << 16)
    with pytest.raises(RemoteError) as caught:
        _answered(lambda key: _frame(FrameKind.FAILED, (3).to_bytes(4, "little") + hostile, key))
    text = str(caught.value)
    assert not any(each in text for each in "\x1b\r\x07\u202e") and len(text) < 1 << 14
