"""What the import makes of the programs of all cases that other tests take a sample of."""

from __future__ import annotations

from imported_programs import programs
from snapshots import assert_snapshot


def test_imported_programs_are_those_of_the_table() -> None:
    assert_snapshot("frontends/stablehlo/imported.txt", programs())
