"""Memory of large arrays: it is used again after the last view of an array is gone, and not before."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from mirlo.passes.exact import reused_memory
from mirlo.passes.exact.reused_memory import LEAST_BYTES, empty_array, release_memory

COUNT = LEAST_BYTES // 8


@pytest.fixture(name="no_memory", autouse=True)
def _no_memory() -> Iterator[None]:
    release_memory()
    yield
    release_memory()


def _address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def test_memory_is_used_again() -> None:
    first = empty_array(COUNT, np.int64)
    place = _address(first)
    del first
    assert _address(empty_array(2 * COUNT, np.int32)) == place


def test_memory_of_larger_arrays_is_used_for_smaller_ones() -> None:
    large = empty_array(8 * COUNT, np.int64)
    place = _address(large)
    del large
    small = empty_array(COUNT, np.int64)
    assert _address(small) == place and len(small) == COUNT
    assert _address(empty_array(8 * COUNT, np.int64)) != place


@pytest.mark.parametrize("view", [lambda a: a[10:20], lambda a: np.ndarray((5,), np.int64, a.data, 80)])
def test_memory_under_a_view_is_not_used_again(view: object) -> None:
    first = empty_array(COUNT, np.int64)
    first[:] = 7
    part = view(first)  # type: ignore[operator]
    del first
    other = empty_array(COUNT, np.int64)
    other[:] = 1
    assert (part == 7).all()


@pytest.mark.parametrize("count", [0, 1, COUNT - 1])
def test_small_arrays_are_those_of_numpy(count: int) -> None:
    array = empty_array(count, np.float64)
    assert len(array) == count and array.flags.owndata


def test_no_more_memory_than_a_limit_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reused_memory, "MOST_BYTES", 3 * LEAST_BYTES)
    arrays = [empty_array(COUNT, np.int64) for _ in range(5)]
    arrays.clear()
    assert sum(len(blocks) for blocks in reused_memory._free.values()) == 3
