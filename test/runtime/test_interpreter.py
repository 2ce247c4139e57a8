"""The state of the garbage collector is restored, also where several threads compile."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import output_of, python

from mirlo.runtime import interpreter
from mirlo.runtime.interpreter import FewerCollections, UsualCollections, make_old


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin as if nothing compiled in this process, whatever other tests left running."""
    monkeypatch.setattr(interpreter, "_running", 0)
    usual = gc.get_threshold()
    monkeypatch.setattr(interpreter, "_usual", usual)
    yield
    gc.set_threshold(*usual)


def test_thresholds_come_back_with_the_last_one() -> None:
    gc.set_threshold(701, 11, 12)
    with FewerCollections():
        with FewerCollections():
            assert gc.get_threshold()[0] > 10_000 and gc.get_threshold()[1:] == (11, 12)
        assert gc.get_threshold()[0] > 10_000
    assert gc.get_threshold() == (701, 11, 12)


def test_an_error_restores_them_too() -> None:
    gc.set_threshold(701)

    @FewerCollections()
    def fail() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert gc.get_threshold()[0] == 701


@pytest.mark.parametrize("own", [0, 1_000_000])
def test_a_program_that_collects_less_is_left_alone(own: int) -> None:
    gc.set_threshold(own)
    with FewerCollections():
        assert gc.get_threshold()[0] == own
    assert gc.get_threshold()[0] == own


def test_a_server_inside_collects_as_usual() -> None:
    gc.set_threshold(701, 11, 12)
    with FewerCollections():
        with UsualCollections():
            assert gc.get_threshold() == (701, 11, 12)
            with FewerCollections():
                assert gc.get_threshold()[0] > 10_000
            assert gc.get_threshold() == (701, 11, 12)
        assert gc.get_threshold()[0] > 10_000
    assert gc.get_threshold() == (701, 11, 12)


def test_a_server_may_end_after_what_began_in_it() -> None:
    gc.set_threshold(701)
    inner = FewerCollections()
    with FewerCollections(), UsualCollections():
        inner.__enter__()
    assert gc.get_threshold()[0] > 10_000
    inner.__exit__()
    assert gc.get_threshold()[0] == 701


def test_without_a_command_around_it_nothing_changes() -> None:
    gc.set_threshold(5_000)
    with UsualCollections():
        assert gc.get_threshold()[0] == 5_000
    assert gc.get_threshold()[0] == 5_000


def test_objects_become_old_without_a_collection() -> None:
    script = """
import gc
from mirlo.runtime import interpreter
from mirlo.runtime.interpreter import make_old

young, before = [[number] for number in range(100)], gc.get_stats()
make_old()
old = {id(each) for each in gc.get_objects(generation=2)}
print(gc.get_stats() == before, all(id(each) in old for each in young), gc.get_freeze_count())
"""
    assert output_of(python("-c", script)).split() == ["True", "True", "0"]


def test_what_a_program_keeps_out_of_collections_stays_out() -> None:
    gc.freeze()
    try:
        make_old()
        assert gc.get_freeze_count() > 0  # no count is compared: some of these objects are freed
    finally:
        gc.unfreeze()


def test_collections_do_not_look_at_imported_modules(tmp_path: Path) -> None:
    """They stay: 25,000 objects before a compilation, and 50,000 of the compiler."""
    graph = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  return %x : tensor<4xf32>\n}\n"
    (tmp_path / "model.mlir").write_text(graph)
    script = """
import gc, sys, mirlo

def young():
    return sum(len(gc.get_objects(generation=number)) for number in (0, 1))

print(mirlo.compile and young())
steps = {}
mirlo.compile(sys.argv[1], cache=False, jobs=1, progress=lambda step, *_: steps.setdefault(step, young()))
print(steps["import"])
"""
    before, compiler = map(int, output_of(python("-c", script, tmp_path / "model.mlir")).split())
    assert before < 1_000 and compiler < 10_000
