"""Locations of nodes of an exported program in the user's code."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mirlo.extend.frontend import ir

if TYPE_CHECKING:
    import torch

_FRAME = re.compile(r'File "([^"\n]+)", line (\d+), in (\S+)')


def location_of(node: torch.fx.Node) -> ir.Location:
    """Return the location of a node: its name, and the user's line."""
    frames = _FRAME.findall(str(node.meta.get("stack_trace") or ""))
    if not frames:
        return ir.Location.name(node.name)
    path, line, _ = frames[-1]
    return ir.Location.name(node.name, ir.Location.file(path, int(line), 0))


def source_line(node: torch.fx.Node) -> str | None:
    """Return the user's line of a node: its file, number and text."""
    trace = node.meta.get("stack_trace")
    if not trace:
        return None
    lines: list[str] = [line.strip() for line in str(trace).strip().splitlines()]
    return ": ".join([line for line in lines if line.strip("^~ ")][-2:])


def origin_of(node: torch.fx.Node) -> str:
    """Return the name of the original node, in the graph of the module that was exported."""
    sources, name = node.meta.get("from_node"), str(node.name)
    while sources:
        sources, name = sources[-1].from_node, str(sources[-1].name)
    return name
