"""Guesses of the next tokens: what followed the last tokens when they occurred before."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST, SHORTEST = 4, 2
"""Tokens that must be the same as the last ones, the most first: shorter ones are often wrong."""
WINDOW = 4096
"""Tokens that are searched, the last ones: the cost of a search is bounded."""


def guess(tokens: Sequence[int], count: int) -> list[int]:
    """Return up to `count` tokens that may follow; none if the last ones have not occurred before."""
    if count < 1:
        return []
    window = list(tokens[-WINDOW:])
    for size in range(LONGEST, SHORTEST - 1, -1):
        wanted = window[-size:]
        for start in range(len(window) - size - 1, -1, -1):
            if window[start] == wanted[0] and window[start : start + size] == wanted:
                return window[start + size : start + size + count]
    return []
