"""Values of enumeration attributes that name an operator."""

from __future__ import annotations

COMPARISONS = {
    "EQ": "equal", "NE": "not_equal", "LT": "less", "LE": "less_equal", "GT": "greater", "GE": "greater_equal",
}  # fmt: skip
"""Relax's comparisons, by value of `comparison_direction`."""
