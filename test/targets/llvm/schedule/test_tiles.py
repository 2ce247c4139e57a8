"""The model of the machine that tiles are chosen by."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from mirlo.targets.llvm.machine import PRESETS
from mirlo.targets.llvm.schedule.contraction.tiles import TileProblem, choose_tile, crowding

MACHINE = PRESETS["avx512"]


def _question(row_step: int) -> TileProblem:
    return TileProblem(128, 768, 16, 3072, True, True, 4, row_step=row_step)


def test_rows_that_begin_in_the_same_set_are_fewer() -> None:
    # 48 KiB in 12 ways: addresses 4096 bytes apart share a set.
    assert crowding(14, _question(3072 * 4), MACHINE) > crowding(12, _question(3072 * 4), MACHINE) > 1
    assert crowding(10, _question(3072 * 4), MACHINE) == 1
    assert crowding(14, _question(768 * 4), MACHINE) == 1 == crowding(14, _question(0), MACHINE)
    assert choose_tile(_question(3072 * 4), MACHINE)[0] <= 10 < choose_tile(_question(768 * 4), MACHINE)[0]


def test_rows_from_far_away_are_read_in_long_runs() -> None:
    """Of depthwise convolutions: rows that fit into the second cache take the tile of the fewest instructions."""
    near = TileProblem(64, 512, 16, 9, False, False, 4, row_bytes=1 << 20)
    far = replace(near, row_bytes=8 << 20)
    assert choose_tile(far, MACHINE)[1] == 4 != choose_tile(near, MACHINE)[1]
    assert choose_tile(replace(far, columns=16), MACHINE)[1] == 1
    assert choose_tile(replace(far, rows=1), MACHINE)[:2] == (1, 4)
    shared = replace(far, shared_rows=True, shared_columns=True)
    assert choose_tile(shared, MACHINE) == choose_tile(replace(shared, row_bytes=0), MACHINE)
    assert choose_tile(replace(far, lanes=8), PRESETS["avx2"])[1] == 2


@pytest.mark.parametrize("depth", [768, 3072])
def test_rows_that_each_panel_reads_from_far_away_take_wider_panels(depth: int) -> None:
    """ViT's products: 197 rows are 1.2 and 4.7 times the L2 cache of Zen 3."""
    near = TileProblem(197, 768, 8, depth, True, True, 4)
    far = replace(near, reread_bytes=197 * depth * 4)
    machine = PRESETS["avx2"]
    assert choose_tile(near, machine)[:2] == (6, 2) and choose_tile(far, machine)[:2] == (4, 3)
    assert choose_tile(replace(far, lanes=16), MACHINE) == choose_tile(replace(near, lanes=16), MACHINE)


@pytest.mark.parametrize("pours", [True, False])
def test_short_sums_that_pour_into_memory_take_smaller_tiles(pours: bool) -> None:
    problem = TileProblem(3136, 256, 16, 64, True, True, 4, pours=pours)
    rows, vectors, _ = choose_tile(problem, PRESETS["avx512"])
    assert (rows * vectors <= 16) == pours


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_product_has_a_tile_on_every_machine(preset: str) -> None:
    machine = PRESETS[preset]
    for rows, columns, depth, shared_rows in product(range(1, 18), (1, 3, 8, 64, 1000), (1, 9, 1280), (True, False)):
        for lanes in (machine.lanes(4), machine.lanes(1)):
            tile = choose_tile(TileProblem(rows, columns, lanes, depth, True, shared_rows, 4), machine)
            assert 1 <= tile[0] <= rows and tile[1] >= 1
