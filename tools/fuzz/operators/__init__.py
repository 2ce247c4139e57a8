"""The nodes of random graphs: one file per family, each a table of functions that plan a node."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache

from mirlo.tools.fuzz.pool import NodeDraft, ValuePool

Planner = Callable[[ValuePool], "NodeDraft | None"]
"""Plans a node from the values of the pool; None where nothing fits."""

PLANNERS: list[tuple[float, Planner]] = []


def plans(weight: float = 1.0) -> Callable[[Planner], Planner]:
    """Register a planner; those of more weight are called more often."""

    def register(planner: Planner) -> Planner:
        PLANNERS.append((weight, planner))
        return planner

    return register


@cache
def load_planners() -> tuple[tuple[float, Planner], ...]:
    """Return all planners."""
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        importlib.import_module(f"{__name__}.{module}")
    return tuple(PLANNERS)
