"""Scripts of all operators and of their prim functions."""

from __future__ import annotations

from printed_scripts import scripts
from snapshots import assert_snapshot


def test_scripts_are_those_of_the_table() -> None:
    assert_snapshot("frontends/script/scripts.txt", scripts())
