"""What tests measure of memory does not depend on the tests before them."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from memory_growth import peak_growth

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="this system has no forks")


def test_an_earlier_peak_hides_nothing() -> None:
    np.ones(100 << 20, np.uint8)  # this process had more
    assert peak_growth(lambda: None) < 10 << 20
    assert 40 << 20 < peak_growth(lambda: np.ones(50 << 20, np.uint8)) < 70 << 20


def test_what_fails_in_the_fork_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        peak_growth(lambda: 1 / 0)
