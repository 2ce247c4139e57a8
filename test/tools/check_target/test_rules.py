"""The tests of `rules.py`, in a process of their own: they register targets."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import require_tests


@pytest.mark.sample(0)
def test_rules(whole: bool) -> None:
    require_tests(Path(__file__).with_name("rules.py"), whole=whole)
