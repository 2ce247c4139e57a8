"""What connects to a rank: a process of another user, or one that is no rank of the model, is refused."""

from __future__ import annotations

import random
import socket
import time
from pathlib import Path

import pytest
from mirlo_ranks.collectives import shared_memory

from mirlo.extend.ranks import RankError, RankPlace

DIGEST = bytes(range(32))
PLACE = RankPlace(1, 4, 4, "job")
MEETING = shared_memory._Meeting(Path(), "name", PLACE, DIGEST, 5.0, 5.0)


def greeted(greeting: bytes, expected: int | None = None) -> None:
    """Connect to rank 1 of 4, send a greeting and close the connection."""
    other, own = socket.socketpair()
    with other, own:
        other.sendall(greeting)
        other.shutdown(socket.SHUT_WR)
        MEETING._greeted(own, time.monotonic() + 5, expected)


def greeting(magic: bytes = shared_memory._MAGIC, rank: int = 2, ranks: int = 4, digest: bytes = DIGEST) -> bytes:
    return shared_memory._HELLO.pack(magic, rank, ranks, digest)


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="the system does not tell who has connected")
def test_processes_of_other_users_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even their greeting is read."""
    user = shared_memory.effective_user()
    monkeypatch.setattr(shared_memory, "effective_user", lambda: user + 1)
    monkeypatch.setattr(shared_memory, "_receive_exactly", lambda peer, size: pytest.fail("it is read"))
    with pytest.raises(RankError, match=f"a process of user {user} wants to be a rank: it is refused"):
        greeted(greeting())


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (greeting(magic=b"mirlork1"), "no rank of this model"),
        (greeting(ranks=5), "no rank of this model"),
        (greeting(rank=4), "no rank of this model"),
        (greeting(rank=1), "no rank of this model"),
        (greeting(rank=2**32 - 1), "no rank of this model"),
        (greeting(digest=bytes(32)), "rank 2 runs another model"),
        (greeting(), "rank 2 sent 0 descriptors, expected that of its heartbeat"),
        (b"", "has ended"),
        (greeting()[:-1], "has ended"),
    ],
)
def test_wrong_greetings_are_refused(sent: bytes, message: str) -> None:
    with pytest.raises(RankError, match=message):
        greeted(sent)


def test_a_rank_in_the_place_of_another_is_refused() -> None:
    with pytest.raises(RankError, match="no rank of this model"):
        greeted(greeting(rank=3), expected=0)


@pytest.mark.parametrize("seed", range(20))
def test_damaged_greetings_are_refused(seed: int) -> None:
    rng = random.Random(seed)
    damaged = bytearray(greeting())
    for _ in range(rng.randrange(1, 4)):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    with pytest.raises(RankError):
        greeted(bytes(damaged))
