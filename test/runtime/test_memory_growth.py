"""What tests measure of memory does not depend on the tests before them."""

from __future__ import annotations

import mmap
import sys

import numpy as np
import pytest
from memory_growth import peak_growth

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="this system has no forks")


def _touch(count: int) -> None:
    """Write to new memory: an allocator may give what was in use before."""
    with mmap.mmap(-1, count) as memory:
        np.frombuffer(memory, np.uint8)[:] = 1


def test_an_earlier_peak_hides_nothing() -> None:
    _touch(100 << 20)  # this process had more
    assert peak_growth(lambda: None) < 10 << 20
    assert 40 << 20 < peak_growth(lambda: _touch(50 << 20)) < 70 << 20


def test_what_fails_in_the_fork_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        peak_growth(lambda: 1 / 0)
