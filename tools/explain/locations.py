"""Locations in printed IR: the nodes of a line, and the line without its locations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from mirlo.dialects.bindings import ir
from mirlo.passes.locations import node_labels

_BEGIN = re.compile(r"(?<!=)(?<!= ) ?\bloc\(")
"""A location of an operation or an argument; `#loc = loc(...)` defines a name for one."""
_STRING_OR_PARENTHESIS = re.compile(r'"(?:[^"\\\n]|\\.)*"|[()]')


def locations_in(line: str) -> Iterator[tuple[int, int]]:
    """Yield where locations begin and end in a line."""
    at = 0
    while (begin := _BEGIN.search(line, at)) is not None:
        end = _closed(line, begin.end())
        if end is None:
            return
        yield begin.start(), end
        at = end


def _closed(line: str, at: int) -> int | None:
    """Return the end of the text that a parenthesis before `at` opened."""
    depth = 1
    for match in _STRING_OR_PARENTHESIS.finditer(line, at):
        depth += {"(": 1, ")": -1}.get(match.group(), 0)
        if depth == 0:
            return match.end()
    return None


def split_locations(text: str) -> tuple[str, tuple[tuple[str, ...], ...]]:
    """Return IR that was printed with its locations as text without them, and the nodes of each line.

    A line that opens a region has the nodes of the one that closes it.
    """
    nodes_of = cache(_nodes)
    lines: list[str] = []
    nodes: list[tuple[str, ...]] = []
    opened: list[int] = []
    for printed in text.rstrip().split("\n"):
        spans = list(locations_in(printed))
        line = printed
        for begin, end in reversed(spans):
            line = line[:begin] + line[end:]
        own = nodes_of(printed[spans[-1][0] : spans[-1][1]].strip()) if spans else ()
        if line.lstrip().startswith("}") and opened:
            nodes[opened.pop()] = own
        if line.rstrip().endswith("{"):
            opened.append(len(lines))
        lines.append(line)
        nodes.append(own)
    return "\n".join(lines), tuple(nodes)


def _nodes(location: str) -> tuple[str, ...]:
    # The bindings parse locations only as parts of operations.
    return tuple(node_labels(ir.Module.parse(f"module {{}} {location}").operation.location))
