"""The model of the machine that tiles are chosen by."""

from __future__ import annotations

from mirlo.targets.llvm.machine import PRESETS
from mirlo.targets.llvm.schedule.contraction.tiles import TileQuestion, choose_tile, crowding

MACHINE = PRESETS["avx512"]


def _question(row_step: int) -> TileQuestion:
    return TileQuestion(128, 768, 16, 3072, True, True, 4, row_step)


def test_rows_that_begin_in_the_same_set_are_fewer() -> None:
    # 48 KiB in 12 ways: addresses 4096 bytes apart share a set.
    assert crowding(14, _question(3072 * 4), MACHINE) > crowding(12, _question(3072 * 4), MACHINE) > 1
    assert crowding(10, _question(3072 * 4), MACHINE) == 1
    assert crowding(14, _question(768 * 4), MACHINE) == 1 == crowding(14, _question(0), MACHINE)
    assert choose_tile(_question(3072 * 4), MACHINE)[0] <= 10 < choose_tile(_question(768 * 4), MACHINE)[0]
