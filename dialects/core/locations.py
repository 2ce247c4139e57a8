"""Locations for messages: a position in a file, and the enclosing names (of ONNX nodes, for example)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from mirlo.dialects.bindings import ir

PARSED_TEXT = "-"
"""The file name that MLIR gives to text parsed from memory."""


class SourcePosition(NamedTuple):
    """A line and column (from 1) of a file; line 0 stands for the whole file."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


def find_source_position(location: ir.Location) -> SourcePosition | None:
    """Return the first file position in a location, or None."""
    location = _refined(location)
    if isinstance(location, ir.FileLineColLoc):
        return SourcePosition(location.filename, location.start_line, location.start_col)
    if isinstance(location, ir.NameLoc):
        return find_source_position(location.child_loc)
    if isinstance(location, ir.CallSiteLoc):
        return find_source_position(location.callee)
    if isinstance(location, ir.FusedLoc):
        return next((position for part in location.locations if (position := find_source_position(part))), None)
    return None


def names_of(location: ir.Location) -> list[str]:
    """Return the names in a location, outermost first: nodes of the user's model."""
    location = _refined(location)
    if isinstance(location, ir.NameLoc):
        return [_name(location), *names_of(location.child_loc)]
    if isinstance(location, ir.CallSiteLoc):
        return names_of(location.callee)
    if isinstance(location, ir.FusedLoc):
        return list(dict.fromkeys(name for part in location.locations for name in names_of(part)))
    return []


def _name(location: ir.NameLoc) -> str:
    try:
        return str(location.name_str)
    except (UnicodeDecodeError, RuntimeError):  # text IR can contain any bytes
        return str(location)


def node_of(location: ir.Location) -> str | None:
    """Return the first name in a location: a node of the user's model."""
    return next(iter(names_of(location)), None)


def _refined(location: ir.Location) -> ir.Location:
    """Return a location as its specific class: diagnostics contain the base class."""
    return ir.Location.from_attr(location.attr, location.context) if type(location) is ir.Location else location


def describe(location: ir.Location, escape: Callable[[str], str]) -> str:
    """Return one line for messages: `file:3:5`, `"node"`, `"node" at file:3:5`, or `unknown location`.

    `escape` makes names from a model safe where the line is printed.
    """
    position = find_source_position(location)
    at = str(position) if position else ""
    names = ", ".join(f'"{escape(name)}"' for name in names_of(location))
    if names and at:
        return f"{names} at {at}"
    return names or at or "unknown location"
