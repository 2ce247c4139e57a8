"""Small kernels on all targets, as their pipelines end and their generators print them."""

from __future__ import annotations

from lowered_kernels import lowered
from snapshots import assert_snapshot


def test_code_is_that_of_the_table() -> None:
    assert_snapshot("targets/lowered.txt", lowered())
