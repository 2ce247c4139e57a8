r"""The sets of characters that `\p{NAME}` means: categories and scripts of Unicode 15.

`unicode_groups.txt` has a set in each line, as RE2 has it: a name, and ranges by the distance of their beginning from
the end of the one before, and by how many characters more they have. Categories of one letter consist of the others.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from mirlo.runtime.regex.charset import ALL, Ranges, union


@cache
def _groups() -> dict[str, Ranges]:
    lines = Path(__file__).with_suffix(".txt").read_text(encoding="ascii").splitlines()
    return {name: _ranges(listed) for name, *listed in map(str.split, lines)}


def _ranges(listed: list[str]) -> Ranges:
    result, end = list[tuple[int, int]](), 0
    for each in listed:
        distance, _, more = each.partition("+")
        start = end + int(distance)
        end = start + int(more or 0)
        result.append((start, end))
    return tuple(result)


@cache
def unicode_group(name: str) -> Ranges | None:
    """Return a category or a script; None if there is none of the name."""
    if name == "Any":
        return ALL
    groups = _groups()
    if len(name) == 1:
        parts = [ranges for part, ranges in groups.items() if len(part) == 2 and part[0] == name]
        return union(each for ranges in parts for each in ranges) if parts else None
    return groups.get(name)
