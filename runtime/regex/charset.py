"""Sets of characters: sorted ranges of code points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache

LAST = 0x10FFFF
Ranges = tuple[tuple[int, int], ...]
"""Ranges with both ends, in order, that neither overlap nor touch."""

ALL: Ranges = ((0, LAST),)
NO_NEWLINE: Ranges = ((0, 9), (11, LAST))
DIGIT: Ranges = ((48, 57),)
SPACE: Ranges = ((9, 10), (12, 13), (32, 32))
WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
PERL = {"d": DIGIT, "s": SPACE, "w": WORD}
POSIX: dict[str, Ranges] = {
    "alnum": ((48, 57), (65, 90), (97, 122)), "alpha": ((65, 90), (97, 122)), "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)), "cntrl": ((0, 31), (127, 127)), "digit": DIGIT, "graph": ((33, 126),),
    "lower": ((97, 122),), "print": ((32, 126),), "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)), "upper": ((65, 90),), "word": WORD, "xdigit": ((48, 57), (65, 70), (97, 102)),
}  # fmt: skip


def union(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the set of all characters of some ranges."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], high)
        else:
            merged.append((low, high))
    return tuple(merged)


def negated(ranges: Ranges) -> Ranges:
    """Return the set of all other characters."""
    result, start = list[tuple[int, int]](), 0
    for low, high in ranges:
        if start < low:
            result.append((start, low - 1))
        start = high + 1
    return (*result, *(((start, LAST),) if start <= LAST else ()))


@lru_cache(256)
def folded(ranges: Ranges) -> Ranges:
    """Return a set with all characters that are equal to one of it but for their case."""
    more = list(ranges)
    for code, others in _orbits().items():
        if any(low <= code <= high for low, high in ranges if low <= code):
            more += [(other, other) for other in others]
    return union(more)


@cache
def _orbits() -> dict[int, Sequence[int]]:
    """Return the characters that are equal to each one but for their case, by simple folding as Unicode defines it."""
    groups: dict[int, list[int]] = {}
    for code in range(0x1E944):  # no script above this one has cases
        letter = chr(code)
        fold = letter.casefold()
        if len(fold) != 1:  # of several letters, which simple folding does not make
            fold = letter.lower()
        groups.setdefault(ord(fold) if len(fold) == 1 else code, []).append(code)
    return {code: group for group in groups.values() if len(group) > 1 for code in group}
