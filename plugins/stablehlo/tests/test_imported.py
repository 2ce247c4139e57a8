"""The imported programs of all cases, of which other tests run a sample."""

from __future__ import annotations

from stablehlo_programs import TESTS, programs

from mirlo.testing.snapshots import assert_snapshot

TABLE = "../plugins/stablehlo/tests/imported.txt"


def test_imported_programs_are_those_of_the_table() -> None:
    assert_snapshot(TESTS / "imported.txt", programs(), f"python test/support/snapshots.py {TABLE}")
