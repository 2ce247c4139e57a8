"""Emitters of C code: `EMITTERS` by operator, one file per family."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

from mirlo.passes.byoc.view import ExternalNode
from mirlo.targets.c.writer import Writer

Emitter = Callable[[Writer, ExternalNode], None]
Check = Callable[[Any], Any]
EMITTERS: dict[str, Emitter] = {}
CHECKS: dict[str, Check] = {}
"""Additional conditions per operator: functions of the operation that return True or a decline."""
FAMILIES = (
    "elementwise",
    "contraction",
    "attention",
    "pool",
    "reduce",
    "normalize",
    "movement",
    "index",
    "scatter",
    "image",
)


def emits(*names: str, check: Check | None = None) -> Callable[[Emitter], Emitter]:
    """Register an emitter for operators of these names."""

    def register(function: Emitter) -> Emitter:
        for name in names:
            EMITTERS[f"relax.{name}"] = function
            if check is not None:
                CHECKS[f"relax.{name}"] = check
        return function

    return register


@cache
def load_emitters() -> dict[str, Emitter]:
    """Import all emitters and return them by operator."""
    for family in FAMILIES:
        importlib.import_module(f"mirlo.targets.c.emit.{family}")
    return EMITTERS
