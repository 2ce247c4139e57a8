"""Locations in messages of passes, whose names are safe to print."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import locations
from mirlo.dialects.core.locations import PARSED_TEXT, SourcePosition, find_source_position, names_of, node_of
from mirlo.runtime.names import terminal

__all__ = ["PARSED_TEXT", "SourcePosition", "describe", "find_source_position", "names_of", "node_of"]


def describe(location: ir.Location) -> str:
    """Return one line for messages: `file:3:5`, `"node"`, `"node" at file:3:5`, or `unknown location`."""
    return locations.describe(location, terminal)
