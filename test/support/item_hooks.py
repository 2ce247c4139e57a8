"""What applies to each test, those of packages included: `test/conftest.py` registers this module.

Pytest calls the hooks of a conftest for the tests of its own folder only.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COSTS = ROOT / "test" / "costs.txt"
"""Seconds of processor time of files, and of one case of test functions: `python -m benchmarks.test_times --write`."""

UNOPTIMIZED = (
    "plugins/llm/tests",
    "plugins/ranks/tests",
    "plugins/stablehlo/tests",
    "test/driver",
    "test/end_to_end",
    "test/frontends/onnx",
    "test/passes/byoc",
    "test/passes/graph",
    "test/runtime",
    "test/targets/llvm/schedule",
    "test/tools",
)
"""Folders of tests that compare numbers: `make test` compiles their models without LLVM's optimizations, a third of the
time; `make nightly` with them. How code is optimized is tested in `targets`."""

WHOLE = "test/architecture"
"""A folder of tests whose cases are parts of one check: all of them run, whatever they cost."""


@cache
def costs() -> dict[str, float]:
    """Return the recorded costs of files and functions."""
    from mirlo.benchmarks.test_times import read_costs

    return read_costs(COSTS)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the cases of functions that are sampled because of their cost, for `--whole -m sample`."""
    function, _, case = item.nodeid.partition("[")
    if case and function in costs() and not function.startswith(WHOLE) and item.get_closest_marker("sample") is None:
        item.add_marker(pytest.mark.sample)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Leave out the optimizations of LLVM where a test needs none of them."""
    folder = item.path.parent.relative_to(ROOT).as_posix() if item.path.is_relative_to(ROOT) else ""
    if item.config.getoption("--whole") or not folder.startswith(UNOPTIMIZED):
        return (yield)
    from mirlo.testing.unoptimized import unoptimized

    with unoptimized():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Skip a test whose operator the ONNX Runtime of an older Python, or an older `onnx`, does not have."""
    return (yield from _skip_what_is_lacking())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Skip a test whose fixture needs such an operator."""
    return (yield from _skip_what_is_lacking())


def _skip_what_is_lacking() -> Generator[None, object, object]:
    try:
        return (yield)
    except Exception as error:
        from mirlo.testing.oracle import lacking

        reason = lacking(error)
        if not reason:
            raise
        pytest.skip(reason)
