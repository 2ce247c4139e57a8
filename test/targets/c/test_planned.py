"""The plans of kernels of all families, as a table has them."""

from __future__ import annotations

from planned_kernels import assert_planned


def test_kernels_are_planned_as_the_table_says() -> None:
    assert_planned("c")
