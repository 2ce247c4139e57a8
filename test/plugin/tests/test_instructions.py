"""Commands of the unit, compared with what they mean: by `mirlo check-target`, and in tests of a package."""

from dataclasses import replace

import mirlo_npu.instructions as instructions
import pytest

from mirlo.testing import assert_commands, assert_intrinsic
from mirlo.tools.cli import main

NAMES = [each.name for each in instructions.INSTRUCTIONS]


def test_check_target_compares_instructions_and_programs(capsys):
    chosen = [word for name in (*NAMES, "npu.product") for word in ("--operator", name)]
    assert main(["check-target", "npu", *chosen]) == 0
    out = capsys.readouterr().out
    assert "5 checks" in out and "5 ok" in out, out


@pytest.mark.parametrize("name", NAMES)
def test_instructions(name):
    assert_intrinsic(name)


@pytest.mark.parametrize("rows", [1, 4, 10])
def test_programs(rows):
    assert_commands(instructions.program(rows))


def tiles_of(command):
    return [("reads", i) for i in range(len(command.reads))] + [("writes", i) for i in range(len(command.writes))]


def with_tile(command, which, **fields):
    name, position = which
    tiles = list(getattr(command, name))
    tiles[position] = replace(tiles[position], **fields)
    return replace(command, **{name: tuple(tiles)})


def moved(command, which, loop):
    """Read or write an iteration later."""
    tile = getattr(command, which[0])[which[1]]
    return with_tile(command, which, address=tile.address + tile.strides[loop])


def stretched(command, which, loop):
    """Move by an element more in each iteration."""
    tile = getattr(command, which[0])[which[1]]
    strides = tuple(stride + 4 if i == loop else stride for i, stride in enumerate(tile.strides))
    return with_tile(command, which, strides=strides)


def shortened(command, which, loop):
    """Leave out the last iteration."""
    sizes = tuple(max(size - 1, 1) if i == loop else size for i, size in enumerate(command.extents))
    return replace(command, extents=sizes)


def restarted(command, which, loop):
    """Begin a reduction with each command."""
    return replace(command, is_first=True)


FAULTS = [
    *((name, change, which, loop) for name in ("npu.load", "npu.store") for change in (moved, stretched)
      for which in (("reads", 0), ("writes", 0)) for loop in (0, 1)),
    *(("npu.multiply", change, which, loop) for change in (moved, stretched) for which, loop in (
        (("reads", 0), 0), (("reads", 0), 2), (("reads", 1), 1), (("reads", 1), 2), (("writes", 0), 0),
        (("writes", 0), 1))),
    *((name, shortened, None, loop) for name, loops in (("npu.load", 2), ("npu.store", 2), ("npu.multiply", 3))
      for loop in range(loops)),
    ("npu.multiply", restarted, None, None),
]  # fmt: skip
"""Faults of the simulator: the instruction, what it does to a command, and the operand and the loop of that."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: "-".join(str(getattr(x, "__name__", x)) for x in fault))
def test_a_fault_of_the_simulator_is_found(fault, monkeypatch):
    broken, change, which, loop = fault

    class Faulty(instructions.Simulator):
        def execute(self, command, memory):
            super().execute(change(command, which, loop) if command.name == broken else command, memory)

    monkeypatch.setattr(instructions, "SIMULATOR", Faulty())
    for name in NAMES:
        if name == broken:
            with pytest.raises(AssertionError, match=r"differs|fails"):
                assert_intrinsic(name)
        else:
            assert_intrinsic(name)
    with pytest.raises(AssertionError, match=r"differs|fails"):
        assert_commands(instructions.program())


def test_check_target_reports_a_fault(monkeypatch, capsys):
    class Faulty(instructions.Simulator):
        def multiply(self, command, memory):
            super().multiply(replace(command, is_first=True), memory)

    monkeypatch.setattr(instructions, "SIMULATOR", Faulty())
    assert main(["check-target", "npu", "--operator", "npu.multiply", "--operator", "npu.load"]) == 1
    out = capsys.readouterr().out
    assert "npu.multiply f32: wrong: result 0 differs in" in out and "1 ok" in out, out
