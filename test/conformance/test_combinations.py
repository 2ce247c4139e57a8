"""The tests of `combination_tests.py` in a separate process, so that other tests do not see their registrations."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import require_tests


@pytest.mark.sample(0)
def test_combinations(whole: bool) -> None:
    require_tests(Path(__file__).with_name("combination_tests.py"), whole=whole)
