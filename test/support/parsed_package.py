"""The parsed files of the package, which several tests of the architecture read."""

from __future__ import annotations

from functools import cache

from commands import ROOT

from mirlo.benchmarks.house import House


@cache
def house() -> House:
    """Return the files of the package, parsed once."""
    return House(ROOT)
