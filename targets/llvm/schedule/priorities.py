"""The order in which schedule rules of target `llvm` are tried, highest first (table in docs/schedules.md)."""

from __future__ import annotations

PRIORITIES = {
    "contraction": 100,
    "paged": 96,
    "blocked": 95,
    "staged_contractions": 90,
    "winograd_input": 70,
    "winograd_output": 70,
    "elementwise": 50,
    "rows": 40,
    "window": 30,
    "stages": 20,
}
"""Priorities by rule. A function that is one contraction, or one attention, needs no other loops, so these come first.
The rules of Winograd's algorithm take blocks of their own names. `stages` divides what no other rule takes. Rules of
packages go between by numbers of their own."""
