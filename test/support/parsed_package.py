"""The parsed files of the package, which several tests of the architecture read."""

from __future__ import annotations

import gc
from functools import cache

from commands import ROOT

from mirlo.benchmarks.house import House


@cache
def house() -> House:
    """Return the files of the package, parsed once."""
    parsed = House(ROOT)
    # Two million objects: each `gc.collect()` of a later test would take seconds to go through them.
    gc.freeze()
    return parsed
