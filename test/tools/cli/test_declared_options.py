"""What options of commands and of Python take and refuse."""

from __future__ import annotations

from declared_options import options
from snapshots import assert_snapshot


def test_options_take_what_the_table_says() -> None:
    assert_snapshot("tools/cli/options.txt", options())
