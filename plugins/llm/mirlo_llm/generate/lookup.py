"""Guesses of the next tokens by prompt lookup: what followed the last tokens where they occurred before."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

LONGEST, SHORTEST = 4, 2
"""Lengths of suffixes that are searched, the longest first, since matches of shorter ones are often wrong."""
WINDOW = 4096
"""Number of last tokens that are searched, which bounds the cost."""


def guess(tokens: Sequence[int], count: int) -> list[int]:
    """Return up to `count` tokens that followed an earlier occurrence of the last ones; none without such."""
    if count < 1:
        return []
    window = array("q", tokens[-WINDOW:])
    size, text = window.itemsize, window.tobytes()
    for length in range(LONGEST, SHORTEST - 1, -1):
        suffix = text[-length * size :]
        place = text.rfind(suffix, 0, len(text) - size)
        while place > 0 and place % size:  # bytes of two tokens
            place = text.rfind(suffix, 0, place + len(suffix) - 1)
        if place >= 0:
            start = place // size + length
            return window[start : start + count].tolist()
    return []
