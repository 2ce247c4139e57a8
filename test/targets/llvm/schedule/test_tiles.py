"""The model of the machine that tiles are chosen by."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from mirlo.targets.llvm.machine import PRESETS
from mirlo.targets.llvm.schedule.contraction.tiles import TileProblem, choose_tile, crowding, step_bounds, step_cycles
from mirlo.targets.llvm.schedule.cost import LATENCY_SLACK

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


def test_tiles_of_webassembly_fit_the_registers_that_engines_leave() -> None:
    """15 registers, of which a product takes one where there is no instruction that adds it."""
    problem = TileProblem(1500, 1536, 4, 384, True, True, 4)
    assert choose_tile(problem, PRESETS["sse"])[:2] == (6, 2)
    assert choose_tile(problem, PRESETS["wasm"])[:2] == (3, 3)
    assert choose_tile(problem, PRESETS["wasm-fma"])[:2] == (6, 2)


@pytest.mark.parametrize("has_large_output", [True, False])
def test_short_reductions_with_large_outputs_take_smaller_tiles(has_large_output: bool) -> None:
    problem = TileProblem(3136, 256, 16, 64, True, True, 4, has_large_output=has_large_output)
    rows, vectors, _ = choose_tile(problem, PRESETS["avx512"])
    assert (rows * vectors <= 16) == has_large_output


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_product_has_a_tile_on_every_machine(preset: str) -> None:
    machine = PRESETS[preset]
    for rows, columns, depth, shared_rows in product(range(1, 18), (1, 3, 8, 64, 1000), (1, 9, 1280), (True, False)):
        for lanes in (machine.lanes(4), machine.lanes(1)):
            tile = choose_tile(TileProblem(rows, columns, lanes, depth, True, shared_rows, 4), machine)
            assert 1 <= tile[0] <= rows and tile[1] >= 1


FAST = replace(PRESETS["avx512"], fma_per_cycle=1 << 20, loads_per_cycle=1 << 20, fma_latency=0)
"""A machine on which no k-step takes time."""


def test_a_step_takes_as_long_as_what_bounds_it() -> None:
    problem = TileProblem(64, 64, 16, 9, True, True, 4)
    assert step_cycles(6, 2, problem, replace(FAST, fma_per_cycle=2)) == 6
    assert step_cycles(6, 2, replace(problem, multiplications=3), replace(FAST, fma_per_cycle=2)) == 18
    assert step_cycles(6, 2, problem, replace(FAST, fma_latency=4)) == 4 * LATENCY_SLACK


@pytest.mark.parametrize(
    ("shared_rows", "shared_columns", "depth", "loads"),
    [(True, True, 9, 6 + 4), (False, True, 9, 12 + 4), (False, False, 2, 12), (False, False, 3, 12 + 4)],
)
def test_loads_of_a_step(shared_rows: bool, shared_columns: bool, depth: int, loads: int) -> None:
    """Windows load half of the vectors of rows; columns stay in registers that accumulators leave."""
    problem = TileProblem(64, 64, 16, depth, shared_columns, shared_rows, 4)
    assert FAST.vector_registers == 32
    assert step_cycles(6, 4, problem, replace(FAST, loads_per_cycle=2)) == loads / 2


@pytest.mark.parametrize(
    ("registers", "rows", "vectors", "loads"),
    [(32, 4, 2, 4), (32, 2, 4, 4 * 4 / 3 + 4), (16, 4, 2, 4 + 2), (16, 5, 2, 10 + 2), (16, 4, 1, 6 / 3)],
)
def test_windows_share_vectors_that_registers_hold(registers: int, rows: int, vectors: int, loads: float) -> None:
    problem = TileProblem(64, 64, 8, 9, shared_columns=False, shared_rows=False, element_bytes=4, taps=3)
    bounds = step_bounds(rows, vectors, problem, replace(FAST, vector_registers=registers, loads_per_cycle=1))
    assert bounds["loads"] == pytest.approx(loads)


@pytest.mark.parametrize(
    ("channels", "size", "pixels", "has_wide_tile"),
    [
        (576, 14, 0, False),
        (512, 14, 0, True),
        (32, 112, 0, True),
        (144, 56, 0, False),
        (512, 4, 32, True),
        (512, 6, 12, False),
    ],
)
def test_half_lines_pay_where_lines_stay_in_the_l1_cache(
    channels: int, size: int, pixels: int, has_wide_tile: bool
) -> None:
    """Vectors of AVX2 are half of a line: the next panel finds the other half, unless pixels share few sets."""
    problem = TileProblem(size, channels, 8, 9, True, False, 4, row_step=4 * channels, taps=3, panel_pixels=pixels)
    assert (choose_tile(problem, PRESETS["avx2"])[1] > 1) == has_wide_tile


def test_a_panel_beyond_half_of_the_l1_cache_comes_from_the_l2_cache() -> None:
    vectors = 4
    fits = FAST.l1_bytes // 2 // (vectors * FAST.vector_bytes)
    problem = TileProblem(64, 64, 16, fits, True, True, 4)
    assert step_cycles(6, vectors, problem, FAST) < 0.01
    expected = vectors * FAST.vector_bytes / FAST.l2_bytes_per_cycle
    assert step_cycles(6, vectors, replace(problem, depth=fits + 1), FAST) == expected
