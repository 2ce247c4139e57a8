"""What the import makes of the programs of all cases that other tests take a sample of."""

from __future__ import annotations

from snapshots import assert_snapshot
from stablehlo_programs import programs


def test_imported_programs_are_those_of_the_table() -> None:
    assert_snapshot("../plugins/stablehlo/tests/imported.txt", programs())
