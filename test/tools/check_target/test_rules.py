"""The tests of `rules.py`, in a process of their own: they register targets."""

from __future__ import annotations

from pathlib import Path

from commands import require_tests


def test_rules(whole: bool) -> None:
    require_tests(Path(__file__).with_name("rules.py"), whole=whole)
