"""Exporters from regions to ONNX models: `EXPORTERS` by operator, one file per family."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

from mirlo.passes.byoc.view import ExternalNode
from mirlo.targets.onnx.export.graph import ExportGraph

Exporter = Callable[[ExportGraph, ExternalNode], Any]
"""A function that adds the operator's nodes to the graph and returns the names of the results in order, or a
decline."""
EXPORTERS: dict[str, Exporter] = {}
FAMILIES = ("elementwise", "networks", "movement", "reductions", "normalize")


def exports(*names: str) -> Callable[[Exporter], Exporter]:
    """Register an exporter for operators of these names."""

    def register(function: Exporter) -> Exporter:
        for name in names:
            EXPORTERS[f"relax.{name}"] = function
        return function

    return register


@cache
def load_exporters() -> dict[str, Exporter]:
    """Import all exporters and return them by operator."""
    for family in FAMILIES:
        importlib.import_module(f"mirlo.targets.onnx.export.{family}")
    return EXPORTERS
