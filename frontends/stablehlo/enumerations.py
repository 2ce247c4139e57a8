"""Attributes that are one of several words."""

from __future__ import annotations

from mirlo.dialects.bindings import ir

COMPARISONS = {
    "EQ": "equal", "NE": "not_equal", "LT": "less", "LE": "less_equal", "GT": "greater", "GE": "greater_equal",
}  # fmt: skip
"""The comparisons of relax, by the word of `comparison_direction`."""


def enumeration(op: ir.Operation, name: str) -> str:
    """Return the word of an attribute: `LT` of `#stablehlo<comparison_direction LT>`."""
    return str(op.attributes[name]).rstrip(">").split()[-1]
