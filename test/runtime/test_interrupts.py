"""Ctrl-C while a model runs: loops of unknown length end, others do not ask."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from c_compiler import needs_c_compiler
from commands import ENVIRONMENT
from onnx import helper, numpy_helper
from onnx_models import BOOL, F32, I64, make_model, node

import mirlo
from mirlo.runtime import interrupts
from mirlo.runtime.names import POLLS

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are sent to processes otherwise there")


def _loop(limit: int | None, going: str = "c") -> onnx.ModelProto:
    """Return a loop that adds 1 while the input `c` holds, at most `limit` times."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Add", "v one", "w"), node("Identity", "keep", "more")],
        "body",
        [value("i", I64, []), value("keep", BOOL, []), value("v", F32, [2])],
        [value("more", BOOL, []), value("w", F32, [2])],
        [numpy_helper.from_array(np.ones(2, np.float32), "one")],
    )
    constants = {} if limit is None else {"limit": np.array(limit)}
    loop = node("Loop", f"{'_' if limit is None else 'limit'} {going} x", "y", body=body)
    return make_model([loop], {"x": (F32, (2,)), "c": (BOOL, ())}, ["y"], constants)


@contextmanager
def _signalled(handler: Any, after: float = 0.3) -> Iterator[None]:
    """Send this process a SIGINT while the block runs."""
    before = signal.signal(signal.SIGINT, handler)
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)


X, ON = np.zeros(2, np.float32), np.array(True)


@pytest.mark.parametrize("target", ["llvm", pytest.param("c", marks=needs_c_compiler)])
def test_an_endless_loop_is_interrupted(target: str) -> None:
    executable = mirlo.compile(_loop(None), target, cache=False)
    for call in (lambda: executable(X, ON), lambda: executable(X, ON, out=np.zeros(2, np.float32))):
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt), _signalled(signal.default_int_handler):
            call()
        assert time.monotonic() - start < 30
    # The next call is one as any other.
    np.testing.assert_array_equal(executable(X, np.array(False)), X)


def test_a_profiled_loop_is_interrupted() -> None:
    executable = mirlo.compile(_loop(None), cache=False)
    with pytest.raises(KeyboardInterrupt), _signalled(signal.default_int_handler):
        executable.profile(X, ON, repeats=1)


def test_what_the_handler_raises_is_raised() -> None:
    class Stopped(Exception):
        pass

    def stop(*unused: Any) -> None:
        raise Stopped("enough")

    executable = mirlo.compile(_loop(None), cache=False)
    with pytest.raises(Stopped, match="enough"), _signalled(stop):
        executable(X, ON)


def test_a_handler_that_returns_does_not_end_the_call() -> None:
    seen: list[float] = []
    executable = mirlo.compile(_loop(30_000_000), cache=False)
    start = time.monotonic()
    with _signalled(lambda *unused: seen.append(time.monotonic()), after=0.05):
        result = executable(X, ON)
        end = time.monotonic()
    assert len(seen) == 1 and start < seen[0] < end
    np.testing.assert_array_equal(result, np.full(2, 1 << 24, np.float32))


def test_a_thread_of_python_goes_on_meanwhile() -> None:
    executable = mirlo.compile(_loop(20_000_000), cache=False)
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(executable(X, ON)))
    thread.start()
    with pytest.raises(KeyboardInterrupt), _signalled(signal.default_int_handler):
        while thread.is_alive():
            time.sleep(0.01)
        time.sleep(5)
    thread.join()
    np.testing.assert_array_equal(results[0], np.full(2, 1 << 24, np.float32))


def test_only_loops_of_unknown_length_ask() -> None:
    asks = mirlo.compile(_loop(None), cache=False)
    assert asks.artifact.metadata[POLLS] and interrupts.SYMBOL.encode() in asks.artifact.code
    for model in (_loop(3, "_"), make_model([node("Exp", "x", "y")], {"x": (F32, (2,))}, ["y"])):
        plain = mirlo.compile(model, cache=False)
        assert POLLS not in plain.artifact.metadata
        assert interrupts.SYMBOL.encode() not in plain.artifact.code


def test_a_saved_model_is_interrupted(tmp_path: Path) -> None:
    mirlo.compile(_loop(None), cache=False).save(tmp_path / "m.mirlo")
    code = f"import mirlo, numpy as np; m = mirlo.load({str(tmp_path / 'm.mirlo')!r}); print('on', flush=True); "
    code += "m(np.zeros(2, np.float32), np.array(True))"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as child:  # fmt: skip
        assert child.stdout is not None and child.stdout.readline() == "on\n"
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        try:
            _, errors = child.communicate(timeout=60)
        finally:
            child.kill()
    assert child.returncode in (1, 130, -signal.SIGINT) and errors.rstrip().endswith("KeyboardInterrupt")
