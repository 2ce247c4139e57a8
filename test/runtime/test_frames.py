"""Calls at any depth of a function with space for frames map no memory."""

from __future__ import annotations

import sys

import pytest

from mirlo.runtime.interpreter import with_frame_space

resource = pytest.importorskip("resource")

CALLS = 200


def _nothing() -> None:
    pass


def _most_faults(depth: int = 250) -> int:
    """Return the page faults of the calls of a function at the depth where they cause most."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(CALLS):
        _nothing()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    return max(faults, _most_faults(depth - 1)) if depth else faults


@pytest.mark.skipif(
    sys.implementation.name != "cpython" or not sys.platform.startswith("linux"), reason="counts page faults"
)
def test_no_depth_maps_memory_for_each_call() -> None:
    assert with_frame_space(_most_faults)() < CALLS // 2


def test_arguments_results_and_names_are_those_of_the_function() -> None:
    @with_frame_space
    def pair(first: int, *, second: int = 2) -> tuple[int, int]:
        """Return both."""
        return first, second

    assert pair(1) == (1, 2) and pair(3, second=4) == (3, 4)
    assert (pair.__name__, pair.__doc__) == ("pair", "Return both.")


def test_errors_pass() -> None:
    @with_frame_space
    def fail() -> None:
        raise KeyError("a")

    with pytest.raises(KeyError, match="a"):
        fail()
