"""An interrupt that comes in a finalizer, or in a callback of a weak reference, is raised after it."""

from __future__ import annotations

import signal
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest
from onnx_models import F32, make_model, node

import mirlo
from mirlo.passes import pipeline
from mirlo.passes.registry import Pass
from mirlo.runtime.interpreter import keeping_interrupts, raise_dropped


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """Handle interrupts as Python does: a process that a shell starts in the background ignores them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class _Finalized:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


class _Referred:
    pass


def _drop_in_finalizer() -> None:
    _Finalized()


def _drop_in_callback() -> None:
    referred = _Referred()
    reference = weakref.ref(referred, lambda _: signal.raise_signal(signal.SIGINT))
    del referred
    assert reference() is None


@pytest.mark.parametrize("drop", [_drop_in_finalizer, _drop_in_callback])
def test_dropped_interrupts_are_raised(drop: Callable[[], None]) -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), keeping_interrupts():
        drop()
        reached.append("after it")
        raise_dropped()
        reached.append("too far")
    with pytest.raises(KeyboardInterrupt), keeping_interrupts():
        drop()
        reached.append("at the end")
    assert reached == ["after it", "at the end"]
    raise_dropped()  # nothing is left


def test_other_exceptions_of_finalizers_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def __del__(self) -> None:
            raise ValueError("in a finalizer")

    reported: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda unraisable: reported.append(unraisable.exc_type))
    with keeping_interrupts():
        Failing()
    assert reported == [ValueError]


def test_other_threads_change_nothing() -> None:
    before, seen = threading.excepthook, []

    def run() -> None:
        with keeping_interrupts():
            seen.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [True] and threading.excepthook is before


@pytest.mark.parametrize("drop", [_drop_in_finalizer, _drop_in_callback])
def test_a_compilation_ends_in_the_interrupt(drop: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    execute = pipeline.Runner._execute

    def interrupted(self: pipeline.Runner, step: Pass, op: object) -> None:
        ran.append(step)
        drop()
        execute(self, step, op)

    monkeypatch.setattr(pipeline.Runner, "_execute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mirlo.compile(make_model([node("Relu", "x", "y")], {"x": (F32, (4,))}, ["y"]), cache=False)
    assert len(ran) == 1
