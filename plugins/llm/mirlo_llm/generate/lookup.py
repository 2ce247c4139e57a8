"""Guesses of the next tokens by prompt lookup: what followed the last tokens where they occurred before."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST, SHORTEST = 4, 2
"""Lengths of suffixes that are searched, the longest first, since matches of shorter ones are often wrong."""
WINDOW = 4096
"""Number of last tokens that are searched, which bounds the cost."""


def guess(tokens: Sequence[int], count: int) -> list[int]:
    """Return up to `count` tokens that followed an earlier occurrence of the last ones; none without such."""
    if count < 1:
        return []
    window = list(tokens[-WINDOW:])
    for size in range(LONGEST, SHORTEST - 1, -1):
        wanted = window[-size:]
        for start in range(len(window) - size - 1, -1, -1):
            if window[start] == wanted[0] and window[start : start + size] == wanted:
                return window[start + size : start + size + count]
    return []
