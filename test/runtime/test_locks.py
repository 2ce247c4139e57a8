"""Locks under which finalizers release resources: these do not wait and interrupt nothing."""

from __future__ import annotations

import signal
import threading

import pytest

from mirlo.runtime import processes
from mirlo.runtime.locks import ReleasingLock, make_lock, release_held_locks

SECONDS = 20.0
"""Far longer than what does not wait takes."""


def test_what_is_deferred_is_released_at_once_if_the_lock_is_free() -> None:
    lock, released = ReleasingLock(), list[int]()
    lock.defer(lambda: released.append(1))
    assert released == [1]


def test_the_thread_that_holds_the_lock_is_not_interrupted() -> None:
    lock, released = ReleasingLock(), list[int]()
    with lock:
        with lock:
            lock.defer(lambda: released.append(1))
        assert not released
        lock.defer(lambda: released.append(2))
    assert released == [1, 2]


def test_another_thread_does_not_wait() -> None:
    lock, released = ReleasingLock(), list[int]()
    with lock:
        thread = threading.Thread(target=lock.defer, args=[lambda: released.append(1)], daemon=True)
        thread.start()
        thread.join(SECONDS)
        assert not thread.is_alive()
        assert not released
    assert released == [1]


def test_what_releases_may_defer() -> None:
    lock, released = ReleasingLock(), list[int]()
    lock.defer(lambda: lock.defer(lambda: released.append(1)))
    assert released == [1]


def test_one_thread_holds_it_at_a_time() -> None:
    lock, inside, most = ReleasingLock(), list[int](), list[int]()

    def work() -> None:
        for _ in range(200):
            with lock:
                inside.append(1)
                most.append(len(inside))
                lock.defer(lambda: None)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1


@pytest.mark.skipif(not processes.can_fork(), reason="no forks on this system")
def test_it_is_free_in_a_fork() -> None:
    lock, held, end = ReleasingLock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        ended = processes.run_forked(lambda: _released_in(lock))
    finally:
        end.set()
        thread.join()
    assert ended.content == b"1"


def _released_in(lock: ReleasingLock) -> bytes:
    released = list[int]()
    signal.alarm(int(SECONDS))
    lock.defer(lambda: released.append(1))
    with lock:
        return b"%d" % len(released)


def test_a_thread_releases_what_it_holds() -> None:
    """After an interrupt at the end of a `with` that skipped the release; other threads keep their locks."""
    lock, other, releasing, released = make_lock(), make_lock(), ReleasingLock(), list[int]()
    is_held, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with other:
            is_held.set()
            may_end.wait(SECONDS)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    assert is_held.wait(SECONDS)
    lock.acquire(), lock.acquire(), releasing.__enter__()
    releasing.defer(lambda: released.append(1))
    release_held_locks()
    assert released == [1]
    free: list[bool] = []
    asking = threading.Thread(target=lambda: free.extend([lock.acquire(blocking=False), other.acquire(blocking=False)]))
    asking.start(), asking.join(SECONDS)
    may_end.set(), thread.join(SECONDS)
    assert free == [True, False]
