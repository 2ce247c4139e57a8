"""The RTL executes programs of commands, whose results are those of the functions that they schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import mirlo_systolic
import pytest
from mirlo_systolic import layers, simulator
from mirlo_systolic.commands import Command
from mirlo_systolic.programs import programs

from mirlo.extend.schedules import TileCommand, TileOperand
from mirlo.testing import assert_commands

pytestmark = pytest.mark.skipif(
    bool(simulator.missing_tools()), reason=f"install {', '.join(simulator.missing_tools())}"
)
PROGRAMS = {program.name: program for program in programs()}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_equal_to_their_functions(name: str) -> None:
    assert_commands(PROGRAMS[name])


def test_check_target_compares_them() -> None:
    declared = [each.name for each in mirlo_systolic.TARGET.instructions()]
    assert declared[-len(PROGRAMS) :] == list(PROGRAMS)


def shown(name: str) -> str:
    """Return a program that executes an instruction."""
    return next(each.name for each in PROGRAMS.values() if any(c.name == name for c in each.schedule.commands()))


def later(tile: TileOperand) -> TileOperand:
    """Return a tile that begins an iteration of its outermost loop later."""
    loop = next(i for i, stride in enumerate(tile.strides) if stride)
    indices = tuple(index + step for index, step in zip(tile.indices, tile.steps[loop], strict=True))
    return replace(tile, address=tile.address + max(tile.strides), indices=indices)


def reads_later(command: TileCommand) -> TileCommand:
    return replace(command, reads=(later(command.reads[0]), *command.reads[1:]))


def writes_later(command: TileCommand) -> TileCommand:
    return replace(command, writes=(later(command.writes[0]),))


def begins_again(command: TileCommand) -> TileCommand:
    return replace(command, is_first=True)


def goes_on(command: TileCommand) -> TileCommand:
    return replace(command, is_first=False)


def other_limits(command: TileCommand) -> TileCommand:
    return replace(command, numbers={**command.numbers, "high": 100})


def other_zero(command: TileCommand) -> TileCommand:
    return replace(command, numbers={**command.numbers, "zero": 4})


FAULTS: list[tuple[str, Callable[[TileCommand], TileCommand]]] = [
    *((name, change) for name in layers.EMITTERS for change in (reads_later, writes_later)),
    *((name, change) for name in ("systolic.multiply", "systolic.largest") for change in (begins_again, goes_on)),
    *((f"systolic.requantize{both}", change) for both in ("", "_both") for change in (other_limits, other_zero)),
]


@pytest.mark.parametrize(("name", "change"), FAULTS)
def test_a_fault_in_the_commands_is_found(
    name: str, change: Callable[[TileCommand], TileCommand], monkeypatch: pytest.MonkeyPatch
) -> None:
    emit = layers.EMITTERS[name]

    def faulty(layer: layers.Layer, command: TileCommand) -> Iterator[Command]:
        yield from emit(layer, change(command))

    monkeypatch.setitem(layers.EMITTERS, name, faulty)
    with pytest.raises(AssertionError, match=r"differs|fails"):
        assert_commands(PROGRAMS[shown(name)])
