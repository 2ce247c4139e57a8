"""The plans of kernels of all families, as a table has them."""

from __future__ import annotations

from planned_kernels import TILES, assert_planned


def test_kernels_are_planned_as_the_table_says() -> None:
    assert_planned("llvm")


def test_tiles_of_models_are_those_of_the_table() -> None:
    """Another choice of tiles gives the same results: only times, or this table, show it."""
    assert_planned(TILES)
