"""Each key of a request reaches what is generated, or is refused with its reason."""

from __future__ import annotations

from request_bodies import TABLE, lines

from mirlo.testing.snapshots import assert_snapshot


def test_bodies_are_read_as_in_the_table() -> None:
    assert_snapshot(TABLE, lines(), "python test/support/snapshots.py ../plugins/llm/tests/serve/bodies.txt")
