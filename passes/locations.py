"""Locations for people: the place in a file, and the names (of ONNX nodes, say) around it."""

from __future__ import annotations

from typing import Any, NamedTuple

from mirlo.dialects.bindings import ir
from mirlo.runtime.names import terminal

PARSED_TEXT = "-"
"""The file name that MLIR gives to text parsed from memory."""


class Place(NamedTuple):
    """A line and column (from 1) of a file; line 0 is the file as a whole."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


def place_of(location: Any) -> Place | None:
    """The first place in a file that a location names, or None."""
    location = _refined(location)
    if isinstance(location, ir.FileLineColLoc):
        return Place(location.filename, location.start_line, location.start_col)
    if isinstance(location, ir.NameLoc):
        return place_of(location.child_loc)
    if isinstance(location, ir.CallSiteLoc):
        return place_of(location.callee)
    if isinstance(location, ir.FusedLoc):
        return next((place for part in location.locations if (place := place_of(part))), None)
    return None


def names_of(location: Any) -> list[str]:
    """The names in a location, outermost first: those of nodes of the user's model."""
    location = _refined(location)
    if isinstance(location, ir.NameLoc):
        return [_name(location), *names_of(location.child_loc)]
    if isinstance(location, ir.CallSiteLoc):
        return names_of(location.callee)
    if isinstance(location, ir.FusedLoc):
        return list(dict.fromkeys(name for part in location.locations for name in names_of(part)))
    return []


def _name(location: Any) -> str:
    try:
        return str(location.name_str)
    except (UnicodeDecodeError, RuntimeError):  # text of IR can spell any bytes
        return str(location)


def node_of(location: Any) -> str | None:
    """The first name in a location: a node of the user's model."""
    return next(iter(names_of(location)), None)


def _refined(location: Any) -> Any:
    """Locations of diagnostics come as the base class; this gives the class of their kind."""
    return ir.Location.from_attr(location.attr, location.context) if type(location) is ir.Location else location


def describe(location: Any) -> str:
    """One line for messages: `file:3:5`, `"node"`, `"node" at file:3:5`, or `unknown location`."""
    place = place_of(location)
    at = str(place) if place else ""
    names = ", ".join(f'"{terminal(name)}"' for name in names_of(location))
    if names and at:
        return f"{names} at {at}"
    return names or at or "unknown location"
