"""A server that a test leaves while it loads changes nothing for the tests after it."""

from __future__ import annotations

import gc
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import served
from mirlo_llm.serve import threads
from served import SERVER_THREADS, shared_threads, usual_interpreter


def test_the_interpreter_is_as_before() -> None:
    before = gc.get_threshold(), sys.getswitchinterval()
    is_compiling, may_end = threading.Event(), threading.Event()

    def compile_slowly() -> None:
        gc.set_threshold(1_000_000, *before[0][1:])  # as a compilation does
        is_compiling.set()
        may_end.wait(30)
        gc.set_threshold(*before[0])

    with usual_interpreter():
        executor = ThreadPoolExecutor(2, SERVER_THREADS)
        executor.submit(compile_slowly)
        assert is_compiling.wait(30)
        executor.shutdown(wait=False, cancel_futures=True)  # as a server does
        sys.setswitchinterval(0.001)
        threading.Timer(0.2, may_end.set).start()
    assert may_end.is_set()
    assert (gc.get_threshold(), sys.getswitchinterval()) == before


def test_also_after_an_error() -> None:
    before = gc.get_threshold()
    with pytest.raises(KeyError), usual_interpreter():
        gc.set_threshold(70_000)
        raise KeyError
    assert gc.get_threshold() == before


def test_servers_of_other_tests_go_on() -> None:
    """Threads that ran before the block are not waited for; nothing runs is fine, too."""
    may_end = threading.Event()
    other = threading.Thread(target=may_end.wait, args=(30,), name=SERVER_THREADS)
    other.start()
    try:
        with usual_interpreter():
            pass
        assert other.is_alive()
    finally:
        may_end.set()
        other.join()


def test_threads_of_all_servers_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that read bodies belong to the process, and wait for the next body."""
    monkeypatch.setattr(served, "END_SECONDS", 1)
    pool = ThreadPoolExecutor(1, f"{SERVER_THREADS} bodies")
    monkeypatch.setattr(threads, "_threads", pool)
    with usual_interpreter():
        pool.submit(int).result(30)
        assert shared_threads() <= set(threading.enumerate())
    pool.shutdown()
