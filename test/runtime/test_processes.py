"""What `runtime/processes.py` does with forks of this process."""

from __future__ import annotations

import gc
import os
import resource
import select
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mirlo.runtime import processes

needs_forks = pytest.mark.skipif(not processes.can_fork(), reason="there are no forks here")


@pytest.mark.sample(0)
@needs_forks
def test_forks_return_bytes_and_how_they_ended(tmp_path: Path) -> None:
    large = bytes(range(256)) * 4096  # more than a pipe holds
    assert processes.run_forked(lambda: large) == processes.ForkResult(large, 0)

    def die() -> bytes:
        os.kill(os.getpid(), signal.SIGSEGV)
        return b""

    def raise_error() -> bytes:
        raise ValueError("unseen")

    with (tmp_path / "errors").open("w+b") as errors:
        assert processes.run_forked(die, errors=errors.fileno()) == processes.ForkResult(b"", -signal.SIGSEGV)
        assert processes.run_forked(raise_error, errors=errors.fileno()).code == 1

        def spin() -> bytes:
            while True:
                pass

        assert processes.run_forked(spin, errors=errors.fileno(), cpu_seconds=1).code in (
            -signal.SIGXCPU,
            -signal.SIGKILL,
        )


class WaitsForAThread:
    """Garbage in a cycle that ends the process which frees it, as a session with threads waits for these forever."""

    def __init__(self) -> None:
        self.itself, self.process = self, os.getpid()

    def __del__(self) -> None:
        if os.getpid() != self.process:
            os._exit(3)


def collect() -> None:
    gc.collect()


@needs_forks
def test_forks_do_not_free_garbage_of_the_process() -> None:
    gc.disable()
    try:
        WaitsForAThread()
        assert processes.run_forked(lambda: str(gc.collect()).encode()).code == 0
        process = processes.process_context().Process(target=collect)
        process.start()
        process.join(30)
        assert process.exitcode == 0
    finally:
        gc.enable()


@needs_forks
def test_what_a_fork_prints_goes_where_it_is_sent(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def print_both() -> bytes:
        os.write(1, b"out")
        os.write(2, b"err")
        return b"done"

    with (tmp_path / "out").open("w+b") as out, (tmp_path / "err").open("w+b") as err:
        assert processes.run_forked(print_both, output=out.fileno(), errors=err.fileno()).content == b"done"
    assert ((tmp_path / "out").read_bytes(), (tmp_path / "err").read_bytes()) == (b"out", b"err")
    assert capfd.readouterr() == ("", "")


def test_names_of_signals() -> None:
    assert processes.signal_name(signal.SIGTERM) == "SIGTERM" and processes.signal_name(250) == "250"


@needs_forks
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has descriptors of processes")
def test_a_watched_process_is_readable_once_it_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        descriptor = processes.watch_process(child.pid)
        assert descriptor is not None
        assert select.select([descriptor], [], [], 0) == ([], [], [])
        child.communicate(b"\n")
        assert select.select([descriptor], [], [], 60)[0] == [descriptor]
    os.close(descriptor)
    assert processes.watch_process(child.pid) is None, "it has ended"


@needs_forks
def test_the_stack_is_limited() -> None:
    def limited() -> bytes:
        processes.limit_stack(1 << 20)
        return str(resource.getrlimit(resource.RLIMIT_STACK)[0]).encode()

    assert processes.run_forked(limited).content == str(1 << 20).encode()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux names the other end")
def test_the_other_end_of_a_local_socket_is_known(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with processes.listen_locally(path, 1) as listener, processes.connect_locally(path) as client:
        served, _ = listener.accept()
        with served:
            assert processes.peer_of(served) == (os.getpid(), os.getuid()) == processes.peer_of(client)


def test_products_of_numpy_use_their_threads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = [8]
    blas = SimpleNamespace(
        scipy_openblas_get_num_threads64_=lambda: counts[-1], scipy_openblas_set_num_threads64_=counts.append
    )
    monkeypatch.setattr(processes, "_openblas", lambda: blas)
    with pytest.raises(KeyError), processes.one_blas_thread():
        raise KeyError
    assert counts == [8, 1, 8]
    for unchanged in (SimpleNamespace(scipy_openblas_get_num_threads64_=lambda: 1), None):
        monkeypatch.setattr(processes, "_openblas", lambda blas=unchanged: blas)
        with processes.one_blas_thread():
            pass
