"""Steps wait for those before only where they must."""

from __future__ import annotations

from mirlo.targets.gpu.device_layout import Hazards

ARENA, TENSORS = object(), object()


def test_readers_do_not_wait_for_each_other() -> None:
    hazards = Hazards()
    assert not hazards.must_wait([(ARENA, 0, 64, False), (ARENA, 64, 64, True)])
    assert not hazards.must_wait([(ARENA, 0, 64, False), (ARENA, 128, 64, True)])


def test_what_is_written_is_waited_for() -> None:
    hazards = Hazards()
    assert not hazards.must_wait([(ARENA, 0, 64, True)])
    assert not hazards.must_wait([(TENSORS, 0, 64, False), (ARENA, 64, 8, True)])
    assert hazards.must_wait([(ARENA, 60, 8, False)])
    # What came before the wait is done.
    assert not hazards.must_wait([(ARENA, 0, 64, False)])


def test_what_is_read_is_not_overwritten_before() -> None:
    hazards = Hazards()
    assert not hazards.must_wait([(ARENA, 0, 64, False)])
    assert hazards.must_wait([(ARENA, 32, 4, True)])
