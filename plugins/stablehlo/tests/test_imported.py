"""The imported programs of all cases, of which other tests run a sample."""

from __future__ import annotations

from snapshots import assert_snapshot
from stablehlo_programs import programs


def test_imported_programs_are_those_of_the_table() -> None:
    assert_snapshot("../plugins/stablehlo/tests/imported.txt", programs())
